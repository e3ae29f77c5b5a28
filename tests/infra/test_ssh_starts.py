"""A machine that accepts a session and then hangs: whoever waits for the start of a command is not kept for good."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest

from infra.ssh import FabricShell, FabricShells
from orchestrator.errors import Unavailable
from orchestrator.ports import HostKey, Worker

HANGS_S = 0.2


class Silent(paramiko.ServerInterface):
    """Lets everybody in, opens every channel, and answers no request for a command or SFTP until `over`."""

    def __init__(self, over: threading.Event) -> None:
        self._over = over

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return int(paramiko.common.AUTH_SUCCESSFUL)

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return int(paramiko.common.OPEN_SUCCEEDED)

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        return self._over.wait()

    def check_channel_subsystem_request(self, channel: paramiko.Channel, name: str) -> bool:
        return self._over.wait()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[FabricShell]:
    """A session with a machine that hangs once it is open."""
    over, host_key = threading.Event(), paramiko.RSAKey.generate(2048)
    key_path = tmp_path / "key"
    paramiko.RSAKey.generate(2048).write_private_key_file(str(key_path))
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            transport = paramiko.Transport(listener.accept()[0])
            transport.add_server_key(host_key)
            transport.start_server(server=Silent(over))

        threading.Thread(target=serve, daemon=True).start()
        shells = FabricShells(listener.getsockname()[1])
        pinned = [HostKey(0, host_key.get_name(), host_key.get_base64())]
        opened = shells.open(Worker(0, "127.0.0.1", "127.0.0.1"), pinned, "orchestrate", key_path)
        assert isinstance(opened, FabricShell)
        opened.connection.connect_timeout = HANGS_S
        yield opened
        over.set()
        opened.close()


def test_a_command_that_is_not_started_is_unavailable(shell: FabricShell) -> None:
    """However long it might take once it has started; the session is closed, and says so from then on."""
    with pytest.raises(Unavailable):
        shell.run(["true"], timeout_s=3600)
    with pytest.raises(Unavailable, match="the connection is closed"):
        shell.run(["true"], timeout_s=3600)


def test_a_copy_that_is_not_started_is_unavailable(shell: FabricShell, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(Unavailable):
        shell.put(tmp_path / "file", "file")
