"""Another user of this machine, who reaches every address of the local cloud, is served nothing.

Each request is sent twice: by a process of another uid (which only root can start), and by one of ours that does not
know the secrets.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.infra.localcloud.conftest import PARENT, PROJECT, ZONE, RunningCloud

NOBODY = 65534
PYTHON = "/usr/bin/python3"
"""One that every user may run: ours may lie in a folder that is closed to others."""
PROGRAM = (Path(__file__).parent / "requests_program.py").read_text()
JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
SCRIPT = {"items": [{"key": "startup-script", "value": "#!/bin/sh\nid -u > $HOME/ran\n"}]}


@dataclass(frozen=True)
class Stranger:
    """A process without the secrets; `uid` None: with our uid."""

    uid: int | None

    def run(self, argv: list[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a program, without anything of ours in its environment."""
        who: dict[str, Any] = {} if self.uid is None else {"user": self.uid, "group": self.uid, "extra_groups": []}
        env = {"PATH": "/usr/bin:/bin"}
        return subprocess.run(argv, input=stdin, env=env, cwd="/", capture_output=True, text=True, timeout=60, **who)

    def ask(self, *requests: tuple[str, str, dict[str, str], str]) -> list[tuple[int, str]]:
        """(status, body) of each (method, URL, headers, body)."""
        done = self.run([PYTHON, "-I", "-c", PROGRAM], json.dumps(requests))
        assert done.returncode == 0, done.stderr
        return [(status, body) for status, body in json.loads(done.stdout)]


@pytest.fixture(
    params=[
        pytest.param(None, id="without-secret"),
        pytest.param(NOBODY, id="other-uid", marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can")),
    ]
)
def stranger(request: pytest.FixtureRequest) -> Stranger:
    """Both kinds."""
    return Stranger(request.param)


def test_no_api_serves_a_stranger(local_cloud: RunningCloud, stranger: Stranger) -> None:
    """Least of all a VM whose startup script would run with our uid."""
    instance = json.dumps(
        {"name": "intruder", "machineType": f"zones/{ZONE}/machineTypes/n1-standard-4", "metadata": SCRIPT}
    )
    node = json.dumps({"acceleratorType": "v3-8", "runtimeVersion": "tpu-ubuntu2204-base"})
    job = json.dumps({"schedule": "* * * * *", "httpTarget": {"uri": "https://tpu.googleapis.com/"}})
    calls = [
        ("POST", f"compute/v1/projects/{PROJECT}/zones/{ZONE}/instances", instance),
        ("GET", f"compute/v1/projects/{PROJECT}/aggregated/instances", ""),
        ("POST", f"v2/{PARENT}/nodes?nodeId=intruder", node),
        ("GET", f"v2/{PARENT}/nodes", ""),
        ("POST", f"v1/projects/{PROJECT}/locations/us-central1/jobs", job),
        ("GET", f"storage/v1/b?project={PROJECT}", ""),
        ("POST", f"storage/v1/b?project={PROJECT}", json.dumps({"name": "intruders-bucket"})),
        ("GET", "any-bucket/any-object", ""),
        ("GET", f"v1/projects/{PROJECT}/billingInfo", ""),
        ("GET", f"v3/projects/{PROJECT}", ""),
        ("GET", "_localcloud/status", ""),
        ("GET", "_localcloud/inventory", ""),
        ("POST", "_localcloud/reset", "{}"),
        ("POST", "_localcloud/shutdown", json.dumps({"destroy": True})),
        ("GET", "no/such/path", ""),
    ]
    url, before = local_cloud.facts["http_url"], local_cloud.look("inventory")["items"]
    for headers, reason in (
        (JSON, "CREDENTIALS_MISSING"),
        ({**JSON, "Authorization": "Bearer "}, "ACCESS_TOKEN_TYPE_UNSUPPORTED"),
        ({**JSON, "Authorization": "Bearer ya29.made-up"}, "ACCESS_TOKEN_TYPE_UNSUPPORTED"),
        ({**JSON, "Authorization": "Basic bWU6bWU="}, "ACCESS_TOKEN_TYPE_UNSUPPORTED"),
    ):
        replies = stranger.ask(*((method, f"{url}/{path}", headers, body) for method, path, body in calls))
        for (_, path, _), (status, body) in zip(calls, replies, strict=True):
            error = json.loads(body)["error"]
            assert (path, status, error["status"]) == (path, 401, "UNAUTHENTICATED")
            assert error["details"][0]["reason"] == reason
    status = local_cloud.look("status")
    assert (status["boot_id"], local_cloud.look("inventory")["items"]) == (local_cloud.facts["boot_id"], before)


def test_oauth_grants_a_stranger_nothing(local_cloud: RunningCloud, stranger: Stranger) -> None:
    """Not for a made-up refresh token, and no assertion is taken for signed."""
    url = f"{local_cloud.facts['http_url']}/token"
    forms = (
        "grant_type=refresh_token&refresh_token=any",
        "grant_type=refresh_token&refresh_token=",
        "grant_type=refresh_token",
        "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=a.b.c",
    )
    replies = stranger.ask(*(("POST", url, FORM, form) for form in forms))
    assert [(status, json.loads(body)["error"]) for status, body in replies] == [
        (400, "invalid_grant"), (400, "invalid_grant"), (400, "invalid_grant"), (400, "unsupported_grant_type"),
    ]  # fmt: skip


def test_each_start_has_another_token(own_cloud: RunningCloud) -> None:
    """Who took over the port of a stopped cloud was sent one that is worth nothing afterwards."""
    file = Path(own_cloud.facts["access_token_file"])
    old = file.read_text()
    own_cloud.kill()
    own_cloud.start()
    assert file.read_text() != old
    refused = own_cloud.http.get("/_localcloud/status", headers={"Authorization": f"Bearer {old}"})
    assert refused.status_code == 401
