"""SSH to a VM: OpenSSH, SFTP, Fabric; pinned host keys; commands that end as under sshd."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import fabric
import paramiko
import psutil
import pytest

from localcloud.tests.conftest import Door, Key, RunningCloud, create_node, door, node_body, result_of
from tests.waiting import eventually

SCRIPT = '#!/bin/sh\necho "started by $USER"\npwd > "$HOME/started.txt"\n'


@pytest.fixture(scope="module")
def vm(local_cloud: RunningCloud, ssh_key: Key, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A v3-8 node, reached as its API says."""
    node = create_node(local_cloud, "ssh-node", node_body(ssh_key, metadata={"startup-script": SCRIPT}))
    answer = local_cloud.tpu().get_guest_attributes(request={"name": node.name, "query_path": "hostkeys/"})
    [worker] = answer.guest_attributes
    address = node.network_endpoints[0].access_config.external_ip
    yield door(local_cloud, address, worker.query_value.items, ssh_key, tmp_path_factory.mktemp("known"))
    result_of(local_cloud.tpu().delete_node(name=node.name))


def test_a_command_runs_with_the_streams_and_the_exit_status_of_sshd(vm: Door) -> None:
    done = vm.run("cat; echo problem >&2; exit 7", stdin=bytes(range(256)) * 5000)
    assert (done.returncode, done.stdout, done.stderr) == (7, bytes(range(256)) * 5000, b"problem\n")


def test_a_command_killed_by_a_signal_is_reported_as_one(vm: Door) -> None:
    assert vm.run("kill -TERM $$").returncode == 255  # OpenSSH's own exit code for exit-signal


def test_the_environment_is_the_vms_and_not_ours(vm: Door) -> None:
    argv = ["ssh", "-o", "SetEnv=LC_TIME=C PATH=/nowhere", *vm.options(), f"tester@{vm.address}", "env"]
    lines = subprocess.run(argv, capture_output=True, check=True, text=True, timeout=30).stdout.splitlines()
    seen = dict(line.split("=", 1) for line in lines if "=" in line)
    assert seen["LC_TIME"] == "C"
    assert seen["PATH"].endswith(":/usr/local/bin:/usr/bin:/bin")
    assert seen["TRAINER_STAND_IN"] == "tpu:8"
    assert seen["USER"] == "tester"
    proxy = urlsplit(seen["https_proxy"])
    assert (proxy.scheme, proxy.hostname, len(proxy.password or "")) == ("http", "127.0.0.1", 32)
    assert not [line for line in lines if "ya29." in line], "the user's own token is not the VM's"
    assert not {"VIRTUAL_ENV", "PYTEST_CURRENT_TEST", "CLOUDSDK_CONFIG"} & set(seen)


def test_python3_is_there_as_in_the_image(vm: Door) -> None:
    assert vm.run("python3 -c 'import asyncssh; print(6 * 7)'").stdout == b"42\n"


def test_the_startup_script_ran_at_boot(vm: Door) -> None:
    told = eventually(lambda: vm.run("cat started.txt").stdout, what="the startup script wrote its file")
    assert told.strip().endswith(b"/home")


def test_sftp_paths_start_at_home(vm: Door, tmp_path: Path) -> None:
    source, back = tmp_path / "source.bin", tmp_path / "back.bin"
    source.write_bytes(bytes(range(256)) * 1000)
    batch = f"mkdir sub\nput {source} sub/copy.bin\nget sub/copy.bin {back}\n"
    argv = ["sftp", *vm.options(), "-b", "-", f"tester@{vm.address}"]
    subprocess.run(argv, input=batch.encode(), check=True, capture_output=True, timeout=30)
    assert back.read_bytes() == source.read_bytes()
    assert vm.run("wc -c < $HOME/sub/copy.bin").stdout.strip() == b"256000"


@pytest.mark.parametrize("protocol", ["-s", "-O"])
def test_scp_works_over_sftp_and_in_its_old_protocol(vm: Door, tmp_path: Path, protocol: str) -> None:
    (tmp_path / "a.txt").write_text(f"hello {protocol}")
    argv = ["scp", protocol, *vm.options(), str(tmp_path / "a.txt"), f"tester@{vm.address}:b.txt"]
    subprocess.run(argv, check=True, capture_output=True, timeout=30)
    assert vm.run("cat b.txt").stdout == f"hello {protocol}".encode()


def test_fabric_works_with_a_pinned_host_key(vm: Door) -> None:
    connection = fabric.Connection(
        vm.address, user="tester", port=vm.port, connect_kwargs={"key_filename": str(vm.key), "look_for_keys": False}
    )
    connection.client.set_missing_host_key_policy(paramiko.RejectPolicy())
    connection.client.load_host_keys(str(vm.known_hosts))
    with connection:
        result = connection.run("echo out; echo err >&2; exit 3", hide=True, warn=True, in_stream=False)
    assert (result.return_code, result.stdout, result.stderr) == (3, "out\n", "err\n")


def test_a_terminal_is_a_terminal(vm: Door) -> None:
    argv = ["ssh", "-tt", *vm.options(), f"tester@{vm.address}", "tty && stty size && exit 5"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    # The end of the input is typed, too, as ^D: the terminal shows it before the first line where it came so early.
    assert (done.returncode, b"/dev/pts/" in done.stdout) == (5, True), done.stdout


def test_a_wrong_host_key_is_refused_by_the_client(vm: Door, ssh_key: Key, tmp_path: Path) -> None:
    wrong = tmp_path / "known"
    kind, value = ssh_key.path.with_suffix(".pub").read_text().split()[:2]
    wrong.write_text(f"[{vm.address}]:{vm.port} {kind} {value}\n")
    done = Door(vm.address, vm.port, vm.key, wrong).run("true")
    assert done.returncode == 255
    assert b"Host key verification failed" in done.stderr


def test_a_key_that_is_not_in_the_metadata_is_refused(vm: Door, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")], check=True)
    done = Door(vm.address, vm.port, tmp_path / "other", vm.known_hosts).run("true")
    assert done.returncode == 255
    assert b"Permission denied (publickey)" in done.stderr


def test_a_disconnect_ends_the_foreground_command_but_not_a_detached_one(vm: Door) -> None:
    command = (
        "setsid sh -c 'echo $$ > detached.pid; exec sleep 300' </dev/null >/dev/null 2>&1 & echo $$; exec sleep 300"
    )
    client = subprocess.Popen(vm.argv(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert client.stdout is not None
    foreground = psutil.Process(int(client.stdout.readline()))
    detached = psutil.Process(
        int(eventually(lambda: vm.run("cat detached.pid").stdout, what="the detached process runs"))
    )
    client.send_signal(signal.SIGKILL)
    client.communicate()
    foreground.wait(60)  # a machine may be busy
    assert detached.is_running()
    detached.kill()
