"""The program by which a script's supervisor copies files to and from the bucket. Real process, real servers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from infra.vm import payload
from tests.infra.vm.test_runner import Host, host  # noqa: F401 - a fixture

pytestmark = pytest.mark.slow  # each test starts programs


@pytest.mark.parametrize("trouble", [[], [503], [401]], ids=["none", "busy", "token"])
def test_a_file_goes_to_the_bucket_and_comes_back(host: Host, trouble: list[int]) -> None:  # noqa: F811
    """As the supervisor of a script asks for it, whatever fails once."""
    url, there = "gs://bucket/a prefix/checkpoint.json", "a prefix/checkpoint.json"
    (host.folder / "mine").write_bytes(b"content")
    host.world.upload_answers, host.world.download_answers = [*trouble], [*trouble]
    assert transfer(host, "put", url, host.folder / "mine").returncode == 0
    assert host.world.stored(there) == b"content"
    assert transfer(host, "get", url, host.folder / "back").returncode == 0
    assert (host.folder / "back").read_bytes() == b"content"
    assert [transfer(host, "remove", url).returncode for _ in range(2)] == [0, 0]
    assert host.world.names() == []


def test_a_file_that_comes_damaged_is_not_taken(host: Host) -> None:  # noqa: F811
    """It is asked for again, and then said."""
    host.world.uploads.append(("x/y", b"content"))
    host.world.sent_crc32c = "AAAAAA=="
    done = transfer(host, "get", "gs://bucket/x/y", host.folder / "back")
    assert (done.returncode, (host.folder / "back").exists()) == (1, False)
    assert done.stderr.strip() == b"gs://bucket/x/y: y came with another checksum"


def transfer(host: Host, verb: str, url: str, *files: Path) -> subprocess.CompletedProcess[bytes]:  # noqa: F811
    """Run the program as it lies on the VM, with short pauses between its tries."""
    program = host.folder / "transfer.py"
    source = payload.SCRIPTS["transfer.py"].read_text()
    assert source.count("(1.0, 2.0, 4.0, 8.0)") == 1
    program.write_text(source.replace("(1.0, 2.0, 4.0, 8.0)", "(0.01,)"))
    argv = [host.python, program, verb, url, *files, "--storage-url", host.world.url]
    env = {**os.environ, "GCE_METADATA_HOST": host.world.host}
    return subprocess.run(argv, env=env, capture_output=True, timeout=30)
