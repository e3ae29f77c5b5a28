"""The host key that a machine must show: the one in the user's known_hosts, and no other."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from paramiko.hostkeys import HostKeys

from orchestrator.domain.host_address import SSH_PORT, HostAddress
from orchestrator.errors import HostKeyRejected
from orchestrator.ports import HostKey

SYSTEM_WIDE = Path("/etc/ssh/ssh_known_hosts")
_Entry = tuple[str, str, str, str]  # marker, names, algorithm, key
_PREFERRED = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")


def known_keys(host: HostAddress, files: Sequence[Path]) -> tuple[HostKey, ...]:
    """The keys that the files know for the machine, the preferred algorithm first.

    Hashed names and `[address]:port` are understood; patterns and certificate authorities are not. A key that any file
    calls @revoked, for whichever machines (`*`, as a rule), is not trusted. Raises HostKeyRejected with the commands
    that would add the key when none is known.
    """
    entries = [entry for file in files for entry in _entries(file)]
    revoked = {base64 for marker, _, _, base64 in entries if marker == "@revoked"}
    keys = [key for key in _keys_of(host, entries) if key.base64 not in revoked]
    if not keys:
        raise _unknown(host, files[0] if files else Path("~/.ssh/known_hosts"))
    return tuple(sorted(dict.fromkeys(keys), key=lambda key: _PREFERRED.index(key.algorithm)))


def _keys_of(host: HostAddress, entries: Iterable[_Entry]) -> Iterator[HostKey]:
    for marker, names, algorithm, base64 in entries:
        if not marker and algorithm in _PREFERRED and _names(names, host.known_as):
            yield HostKey(0, algorithm, base64)


def _unknown(host: HostAddress, file: Path) -> HostKeyRejected:
    port = "" if host.port == SSH_PORT else f"-p {host.port} "
    return HostKeyRejected(
        f"{host.known_as} has no key in {file}, so it cannot be verified: nothing was sent to it",
        f"compare what `ssh-keyscan {port}{host.address} | ssh-keygen -lf -` prints with what "
        "`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` prints on that machine itself; if they agree: "
        f"`ssh-keyscan {port}{host.address} >> {file}`",
    )


def _entries(file: Path) -> Iterator[_Entry]:
    """Each usable line; a file that is not there has none."""
    try:
        lines = file.read_text("utf-8", "replace").splitlines()
    except OSError:
        return
    for line in lines:
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) >= 3 and not words[0].startswith("#"):
            yield marker, words[0], words[1], words[2]


def _names(names: str, wanted: str) -> bool:
    for name in names.split(","):
        if name.startswith("|1|"):
            try:
                if hmac.compare_digest(HostKeys.hash_host(wanted, name), name):
                    return True
            except (ValueError, AssertionError, IndexError):
                continue  # a damaged line has no host
        elif name == wanted:
            return True
    return False
