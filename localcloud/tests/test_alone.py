"""The local cloud installed by itself: its wheel in an environment that has nothing of ours besides."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import tomllib

from localcloud.tests.cloud_process import ROOT

ONE_CALL = """
import sys
from importlib.util import find_spec
from google.cloud import tpu_v2
from google.oauth2.credentials import Credentials
from localcloud import client
assert not [name for name in ("orchestrator", "infra", "trainer", "tensorflow") if find_spec(name)]
cloud = client.find(client.Path(sys.argv[1]))
token = open(cloud["access_token_file"]).read()
tpus = tpu_v2.TpuClient(
    credentials=Credentials(token), client_options={"api_endpoint": cloud["http_url"]}, transport="rest"
)
place = "projects/local-project/locations/us-central1-a"
node = tpu_v2.Node(accelerator_type="v3-8", runtime_version="tpu-ubuntu2204-base")
print(tpus.create_node(parent=place, node_id="alone", node=node).result().state.name)
"""
THEIR_TEST = """
def test_it_is_empty(localcloud):
    assert localcloud.control("inventory") == {"items": []}
"""


def test_what_it_requires_is_required_in_the_same_words_by_the_whole() -> None:
    """Two wheels hold the package: a range stands in both."""
    alone, whole = (
        tomllib.loads((ROOT / path).read_text()) for path in ("localcloud/pyproject.toml", "pyproject.toml")
    )
    extras = whole["project"]["optional-dependencies"]
    known = {*whole["project"]["dependencies"], *extras["local"], *extras["ui"]}
    assert set(alone["project"]["dependencies"]) <= known


@pytest.mark.network
@pytest.mark.parametrize("from_archive", [False, True], ids=["from the checkout", "from the source archive"])
def test_its_wheel_has_all_of_it_and_none_of_its_tests(tmp_path: Path, from_archive: bool) -> None:
    """As `pip wheel ./localcloud` and `python -m build localcloud` make it: links have become files."""
    source = ROOT / "localcloud"
    if from_archive:
        build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
        subprocess.run(build, cwd=source, check=True, capture_output=True, timeout=120)
        [source] = tmp_path.glob("*.tar.gz")
    [wheel] = _wheels(source, tmp_path / "made")
    with zipfile.ZipFile(wheel) as archive:
        names = {item.filename: item.file_size for item in archive.infolist()}
    about = f"{wheel.name.rpartition('-py3')[0]}.dist-info"
    for needed in ("LICENSE", "README.md", "accelerators.toml", "prices.csv", "pytest_plugin.py", "vm/sudo.sh"):
        assert names[f"localcloud/{needed}"] == (ROOT / "localcloud" / needed).stat().st_size
    assert {name.partition("/")[0] for name in names} == {"localcloud", about}
    assert [name for name in names if name.startswith("localcloud/tests/")] == []


@pytest.mark.network
@pytest.mark.timeout(600)
def test_it_is_installed_alone_and_serves_an_official_client(tmp_path: Path) -> None:
    """The command, its coverage table and its pytest fixture; nothing of it runs on when it has stopped."""
    [wheel] = _wheels(ROOT / "localcloud", tmp_path)
    python, command = tmp_path / "alone/bin/python", tmp_path / "alone/bin/localcloud"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "alone")], check=True)
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", str(wheel), "pytest"]
    installed = subprocess.run(install, capture_output=True, text=True, check=False)
    if "No matching distribution found" in installed.stderr:
        pytest.skip("no package index can be reached")
    assert installed.returncode == 0, installed.stderr
    (tmp_path / "test_theirs.py").write_text(THEIR_TEST)
    state = str(tmp_path / "state")

    def run(*words: str | Path) -> str:
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    try:
        assert run(command, "up", "--state", state).startswith("running at http://127.0.0.1:")
        assert run(python, "-c", ONE_CALL, state) == "READY\n"
        assert "node  alone  us-central1-a  READY" in run(command, "status", "--state", state)
        assert "export CLOUDSDK_CORE_PROJECT=local-project\n" in run(command, "env", "--state", state)
    finally:
        run(command, "down", "--destroy", "--state", state)
    assert run(command, "down", "--state", state) == "the local cloud is not running\n"
    assert "| Cloud TPU v2 |" in run(command, "coverage")
    assert "1 passed" in run(python, "-m", "pytest", "-q", "test_theirs.py")


def _wheels(source: Path, to: Path) -> list[Path]:
    make = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(to)]
    subprocess.run([*make, str(source)], check=True, capture_output=True, timeout=120)
    return list(to.glob("*.whl"))
