"""`fork_client.py SOCKET PYTHON ARGUMENTS`: `PYTHON ARGUMENTS`, forked by fork_server.py where that can be.

To whoever started it, it is that program: streams, signals (SIGKILL too), exit status. A shell's `exec` starts it in
isolation and without `site`. It stays while the program runs, so it imports nothing that is not built in: 15 ms and
3 MiB, where `json`, `signal` and `socket` would make that 26 ms and 4 MiB.
"""

from __future__ import annotations

import _signal as signal
import _socket as socket
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

READ_AT_IMPORT = (
    *("TF_", "KERAS_", "JAX_", "GCS_", "OMP_", "OPENBLAS_", "MKL_", "PJRT_", "TPU_", "NPY_"),
    *("GRPC_", "PROTOCOL_BUFFERS_", "PYDANTIC_"),
)
"""How the variables begin that libraries read when they are imported: the server does not inherit them, and forks for
nobody who has others than it has set itself. XLA_FLAGS are read when something is compiled for the first time."""


def main() -> None:
    """Have it forked, or become it."""
    path, python, *arguments = sys.argv[1:]
    umask = os.umask(0o077)
    os.umask(umask)
    environ = [f"{name}={value}" for name, value in os.environ.items()]
    asked = [os.getcwd(), str(umask), str(len(arguments)), *arguments, *environ]  # noqa: PTH109 - pathlib takes 5 ms
    status = _forked(path, os.fsencode("\0".join(asked)))
    if not status:
        os.execv(python, [python, *arguments])
    code = int(status)
    if code < 0:  # a signal ended it: so it ends this
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    os._exit(code)


def _forked(path: str, asked: bytes) -> bytes:
    """The exit status as text; empty when the server does not serve this, or is not there.

    A server that dies once it has forked takes the client's exit status along: nothing is run twice.
    """
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def pass_on(number: int, _frame: FrameType | None) -> None:
        try:  # noqa: SIM105 - contextlib takes as long to import as all of this
            server.send(bytes([number]))
        except OSError:
            pass  # it has ended, and how is there to be read

    try:
        server.connect(path)
        streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
        server.sendmsg([len(asked).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
        server.sendall(asked)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGABRT, signal.SIGUSR1, signal.SIGUSR2):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, pass_on)
        if not server.recv(1):
            return b""
    except OSError:
        return b""
    try:
        return server.recv(16) or b"-9"
    except OSError:
        return b"-9"


if __name__ == "__main__":
    main()
