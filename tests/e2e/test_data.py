"""`orchestrate data prepare` by the real command: local, by Apache Beam, as a Dataflow job; from and into buckets."""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path

import pytest

from infra.gcp.clients import Endpoints, GoogleClients
from tests.e2e.conftest import Orchestrate
from tests.trainer.data.pictures import write_photos

pytestmark = [pytest.mark.slow, pytest.mark.cloud]
needs_beam = pytest.mark.skipif(find_spec("apache_beam") is None, reason="make test-beam installs Apache Beam")


def test_a_launch_reuses_what_was_prepared_and_damaged_files_are_named(
    orchestrate: Orchestrate, tmp_path: Path
) -> None:
    """Without --to the shards lie where `launch --data` looks for them."""
    source = write_photos(tmp_path / "photos", each=40)
    command = ["data", "prepare", str(source), "--workload", "flowers", "--image-size", "32", "--json"]
    (source / "class_0" / "003.jpg").write_bytes(b"no photo")
    stopped = orchestrate.run(*command)
    assert (stopped.code, stopped.json["error"]["code"]) == (2, "UsageError")
    assert "class_0/003.jpg: cannot be decoded" in stopped.json["error"]["message"]
    skipped = orchestrate.run(*command, "--bad-files", "skip")
    assert (skipped.code, [one["name"] for one in skipped.json["left_out"]]) == (0, ["class_0/003.jpg"])
    (source / "class_0" / "003.jpg").unlink()
    made = orchestrate.run(*command)
    assert (made.code, made.json["left_out"], made.json["reused"]) == (0, [], False)
    plan = orchestrate.run(
        "launch", "--accel", "t4", "--workload", "flowers", "--data", str(source), "--image-size", "32",
        "--dry-run", "--json",
    )  # fmt: skip
    assert plan.code == 0, plan.err
    assert made.json["where"] in {str(path.parent) for path in orchestrate.home.rglob("manifest.json")}
    assert orchestrate.run(*command).json["reused"]


@pytest.fixture
def with_beam(orchestrate: Orchestrate) -> Orchestrate:
    """Commands that find Beam where this Python does."""
    found = find_spec("apache_beam")
    assert found is not None
    assert found.origin is not None
    orchestrate.environment["PYTHONPATH"] = f"{Path(found.origin).parents[1]}:{orchestrate.environment['PYTHONPATH']}"
    orchestrate.python = Path(sys.executable)  # a Python of its own: the forked ones have another protobuf
    return orchestrate


@needs_beam
def test_buckets_by_beam_and_as_a_job_for_dataflow(with_beam: Orchestrate, tmp_path: Path) -> None:
    """The same fingerprint as of the folder; the job is priced, described and not submitted."""
    orchestrate, source = with_beam, write_photos(tmp_path / "photos", each=40)
    assert orchestrate.run("cloud", "up").code == 0
    said = json.loads(next(orchestrate.home.rglob("cloud.json")).read_text())
    endpoints = Endpoints.of_local_cloud(next(orchestrate.home.rglob("cloud.json")))
    bucket = GoogleClients(said["project"], endpoints).storage.create_bucket("photos-of-mine", location="us-central1")
    for path in source.rglob("*.jpg"):
        bucket.blob(f"photos/{path.relative_to(source)}").upload_from_filename(path)
    sizes = ["--kind", "photos", "--image-size", "32", "--json"]
    here = orchestrate.run("data", "prepare", str(source), *sizes)
    command = ["data", "prepare", "gs://photos-of-mine/photos", "--to", "gs://photos-of-mine/shards", *sizes]
    beam = orchestrate.run(*command, "--runner", "direct")
    assert beam.code == 0, beam.err
    assert beam.json["fingerprint"] == here.json["fingerprint"]
    file = tmp_path / "job.json"
    job = orchestrate.run(
        *command, "--runner", "dataflow", "--max-workers", "4", "--max-hours", "1", "--job-file", str(file)
    )
    assert (job.code, job.json["submitted"]) == (0, False), job.err
    vcpu = next(part for part in job.json["parts"] if part["what"] == "Dataflow vCPU hours")
    hours = Decimal(4) * 4 * (1 + Decimal(600) / 3600)  # workers, vCPUs of each, the job's hour and ten minutes
    assert abs(Decimal(vcpu["usd"]) - hours * Decimal("0.056")) < Decimal("0.0001")
    assert Decimal(job.json["worst_case_usd"]) > hours * Decimal("0.056")
    described = json.loads(file.read_text())
    assert described["options"]["max_num_workers"] == 4
    command.remove("--json")
    shown = orchestrate.run(*command, "--runner", "dataflow", "--job-file", str(file))
    assert (shown.code, "cost at most $" in shown.out, "not submitted" in shown.err) == (0, True, True)
    command.append("--json")
    elsewhere = orchestrate.run(*command, "--runner", "dataflow", "--region", "europe-west4", "--job-file", str(file))
    assert elsewhere.code == 3, elsewhere.err
    assert "europe-west4" in elsewhere.json["error"]["message"]
