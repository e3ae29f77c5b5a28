"""The fixture `localcloud`, as the tests of another project use it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

OTHERS_TESTS = """
import os
import shutil
import subprocess

import pytest
from google.api_core.client_options import ClientOptions
from google.cloud import storage, tpu_v2
from google.oauth2.credentials import Credentials

PLACE = "projects/local-project/locations/us-central1-a"


def tpus(localcloud):
    options = ClientOptions(api_endpoint=localcloud.endpoint)
    return tpu_v2.TpuClient(credentials=Credentials(localcloud.token), client_options=options, transport="rest")


def buckets(localcloud):
    options = ClientOptions(api_endpoint=localcloud.endpoint)
    return storage.Client(localcloud.project, Credentials(localcloud.token), client_options=options)


@pytest.mark.parametrize("time", ["first", "second"])
def test_each_test_finds_it_empty(localcloud, time):
    assert list(tpus(localcloud).list_nodes(parent=PLACE)) == []
    assert list(buckets(localcloud).list_buckets()) == []
    buckets(localcloud).create_bucket("some-bucket").blob("a").upload_from_string("b")
    node = tpu_v2.Node(accelerator_type="v3-8", runtime_version="tpu-ubuntu2204-base")
    tpus(localcloud).create_node(parent=PLACE, node_id="mine", node=node).result()
    assert [item["name"] for item in localcloud.control("inventory")["items"] if item["kind"] == "node"] == ["mine"]


def test_programs_find_it_in_the_environment(localcloud):
    assert os.environ["HTTPS_PROXY"] == localcloud.environment["HTTPS_PROXY"]
    said = subprocess.run(["orchestrate", "cloud", "status", "--json"], capture_output=True, text=True, check=True)
    assert '"running": true' in said.stdout


def test_without_it_the_environment_is_as_before():
    assert "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE" not in os.environ
"""


@pytest.mark.verify
@pytest.mark.slow
def test_others_tests_get_a_cloud_of_their_own(tmp_path: Path) -> None:
    """Started once; each test finds it empty, by Google's clients and in the environment; nothing is left running."""
    (tmp_path / "test_theirs.py").write_text(OTHERS_TESTS)
    programs = str(Path(sys.executable).parent)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-q", "."],
        cwd=tmp_path,
        env={"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path), "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert "4 passed" in done.stdout, done.stdout + done.stderr
