"""`ssh`, `scp` and `sftp` as programs that know the port of this cloud's VMs, for whoever calls them by name.

gcloud calls `ssh` from the PATH and has no setting for the port or the configuration file; port 22 belongs to root.
"""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

_PROGRAMS = ("ssh", "scp", "sftp")


def write_ssh_programs(folder: Path, port: int) -> None:
    """Write the programs of those that this machine has, and their configuration, into `folder`."""
    folder.mkdir(mode=0o700, exist_ok=True)
    config = folder / "config"
    # The first value wins, so the port stands first; `-F` replaces the user's and the system's files: include both.
    config.write_text(f"Host 127.77.*\n  Port {port}\nHost *\n  Include ~/.ssh/config\n  Include /etc/ssh/ssh_config\n")
    others = os.pathsep.join(one for one in os.environ.get("PATH", "").split(os.pathsep) if Path(one) != folder)
    for name in _PROGRAMS:
        found = shutil.which(name, path=others)
        if found is not None:
            program = folder / name
            program.write_text(f'#!/bin/sh\nexec {shlex.quote(found)} -F {shlex.quote(str(config))} "$@"\n')
            program.chmod(0o700)
