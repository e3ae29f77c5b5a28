"""Starts the local cloud, one server per state directory: `python -m localcloud --help`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import gc
import logging
import os
import resource
import signal
import sys
from pathlib import Path

from localcloud.access import Access, close_to_others


def main() -> int:
    """Run until it is stopped or idle. A second start for the same directory reports that and exits with 0."""
    arguments = _parser().parse_args()
    state: Path = arguments.state.resolve()
    os.umask(0o077)  # every file of this process and of its VMs is for its user alone
    try:
        close_to_others(state)
    except OSError as error:
        sys.stderr.write(f"local cloud: {error}\n")
        return 1
    # The lock's descriptor is not inherited, so a VM's processes that outlive us do not keep the lock.
    lock = os.open(state / "cloud.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.stdout.write(f"the local cloud in {state} is already running\n")
        return 0
    # Started under nohup, it would hand "ignore hang-ups" down to the VMs' processes; a handler is not handed down.
    signal.signal(signal.SIGHUP, lambda *_: None)
    _allow_files()
    # Google's message types take a second to import: only the one that runs needs them. They stay: no garbage there.
    gc.disable()
    from localcloud.server import Cloud, Options, empty

    gc.freeze()
    gc.enable()
    logging.basicConfig(
        filename=state / "cloud.log", level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    for name in ("asyncssh", "uvicorn"):
        logging.getLogger(name).setLevel(logging.WARNING)
    options = Options(
        state, Access.renewed(state), arguments.prices, arguments.accelerators, arguments.project, arguments.create_s,
        arguments.idle_exit_s, arguments.vm_python,
    )  # fmt: skip

    async def serve() -> None:
        while await Cloud(options).run():
            empty(state)

    try:
        asyncio.run(serve())
    except (OSError, ValueError) as error:
        logging.getLogger("localcloud").exception("cannot run")
        sys.stderr.write(f"local cloud: {error}\n")
        return 1
    return 0


def _allow_files() -> None:
    """As many open files as the system lets us: each VM has two sockets and some connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # where there is a limit that cannot be told
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m localcloud", description=__doc__)
    parser.add_argument("--state", type=Path, required=True, help="directory that holds everything")
    parser.add_argument("--prices", type=Path, required=True, help="price list (CSV); says what is offered where")
    parser.add_argument("--accelerators", type=Path, required=True, help="chips and machine types (TOML)")
    parser.add_argument("--project", default="local-project", help="project id")
    parser.add_argument("--create-s", type=float, default=1.0, help="how long creating takes, on the cloud's clock")
    parser.add_argument(
        "--vm-python", type=Path, default=Path(sys.executable), help="program that VM images have as python3"
    )
    parser.add_argument("--idle-exit-s", type=float, default=600.0, help="exit when without VMs and requests so long")
    return parser


if __name__ == "__main__":
    sys.exit(main())
