"""Files that let gcloud's `ssh` and `scp`, and gsutil, reach this cloud; `orchestrate cloud env` points at them.

gcloud calls `ssh` by its name and has no setting for the port or the configuration file, and port 22 belongs to root:
so programs of these names, first on the PATH, add the port of this cloud's VMs. gsutil reads neither gcloud's token
file nor the variables for certificates, only a boto file.
"""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from infra.localcloud.access import write_private

_PROGRAMS = ("ssh", "scp", "sftp")
# The first value wins, so the port stands first. `-F` replaces the user's and the system's files: both are included.
_SSH_CONFIG = "Host 127.77.*\n  Port {port}\nHost *\n  Include ~/.ssh/config\n  Include /etc/ssh/ssh_config\n"
# gsutil asks oauth2.googleapis.com, which is this cloud, for an access token.
_BOTO = """[Credentials]
gs_oauth2_refresh_token = {token}
[Boto]
ca_certificates_file = {ca_bundle}
[GSUtil]
state_dir = {folder}/gsutil
"""


@dataclass(frozen=True)
class ClientFiles:
    """Paths of what is written: `bin` belongs first on the PATH, `boto` into BOTO_CONFIG."""

    bin: Path
    boto: Path


def write_client_files(folder: Path, ssh_port: int, token: str, ca_bundle: Path) -> ClientFiles:
    """Write them into `folder`, readable by the user alone: ssh programs of those that this machine has."""
    files = ClientFiles(folder / "bin", folder / "boto")
    files.bin.mkdir(parents=True, exist_ok=True)
    write_private(files.boto, _BOTO.format(token=token, ca_bundle=ca_bundle, folder=folder).encode())
    config = folder / "ssh_config"
    write_private(config, _SSH_CONFIG.format(port=ssh_port).encode())
    path = os.pathsep.join(one for one in os.environ.get("PATH", "").split(os.pathsep) if Path(one) != files.bin)
    for name in _PROGRAMS:
        found = shutil.which(name, path=path)
        if found is not None:
            script = f'#!/bin/sh\nexec {shlex.quote(found)} -F {shlex.quote(str(config))} "$@"\n'
            write_private(files.bin / name, script.encode())
            (files.bin / name).chmod(0o700)
    return files
