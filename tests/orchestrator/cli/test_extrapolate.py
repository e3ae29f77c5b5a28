"""`estimate --images .. --from ..`: its output, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orchestrator.cli.conftest import Shell
from tests.orchestrator.predict.test_extrapolate import sweep
from tests.records import write_record

FIRST = (
    "one run of mnist-mlp on 60,000,000,000 training and 10,000,000,000 test samples, 20 epochs, "
    "15,000,000 times the largest size that was measured"
)


def files(folder: Path, **more: object) -> list[str]:
    """--from for each of nine record files of a known law: 100 µs a sample, 1 %."""
    made = sweep(1e-4, 0.01, accelerator=None, workload="mnist-mlp", **more)  # type: ignore[arg-type]
    paths = [write_record(folder / f"{n}.json", source.record) for n, source in enumerate(made)]
    return [word for path in paths for word in ("--from", str(path))]


def test_sixty_billion_images_beside_the_published_seconds(run_cli: Shell) -> None:
    """Refused without --beyond; with it how far comes first, then hours, cost, and what is wrong with 3.49 s."""
    named = files(run_cli.folder)
    asked = ("estimate", "--images", "60e9", "--test-images", "10e9", "--accel", "v3-8", *named)
    refused = run_cli(*asked)
    assert (refused.exit, refused.stdout) == (2, "")
    assert "60,000,000,000 samples are 15,000,000 times the largest size that was measured, 4,000" in refused.stderr
    assert "--beyond" in refused.stderr
    done = run_cli(*asked, "--beyond")
    assert done.exit == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == FIRST
    assert " ".join(lines[1].split()) == "accelerator runs hours interval USD interval of credit limited by"
    assert (lines[2].split()[0], lines[2].split()[-1]) == ("v3-8", "memory")
    for said in (
        "to 15,000,000 times as many",
        "54.9 TB read 20 times at 30 Gbit/s",
        "it cannot run as it is: the order of an epoch alone (8 bytes a sample) takes 480 GB",
        "does NOT fit into your credit: $300.00 of $300.00 is free",
        '"3.49 seconds on one TPU". Wrong:',
        "by its own ratio it is 3.49 hours",
        "768 x 14",
        "47 TB",
        "interval: 95%",
    ):
        assert said in done.stdout
    assert "simulated" not in done.stdout
    near = run_cli("estimate", "--images", "40e3", "--epochs", "20", "--accel", "v3-8", *named)
    assert near.stdout.splitlines()[0] == "one run of mnist-mlp on 40,000 training and 256 test samples, 20 epochs"


def test_an_extrapolation_as_json(run_cli: Shell) -> None:
    """Seconds and dollars from low to high, what takes how long, and what binds."""
    named = files(run_cli.folder)
    asked = ("estimate", "--images", "60e9", "--epochs", "20", "--accel", "v3-8", *named, "--beyond", "--json")
    found = run_cli(*asked).json
    assert (found["images"], found["epochs"], found["simulated"]) == (60 * 10**9, 20, False)
    [one] = found["answers"]
    low, high = one["interval_s"]
    assert low <= 20 * 60e9 * 1e-4 <= high
    assert low < one["law_interval_s"][0] < one["seconds"] < one["law_interval_s"][1] < high
    assert [bound["name"] for bound in one["bounds"]] == ["training", "input", "fixed cost"]
    assert (one["binds"], one["slowest"], one["cost"]["fits"]) == ("memory", "training", False)
    assert (one["runs"], one["sizes"], one["factor"]) == (9, [1000, 2000, 4000], 15e6)
    assert one["unseen_bend"] > 0


def test_simulated_runs_say_that_speeds_mean_nothing(run_cli: Shell) -> None:
    """At both ends of the text, and in the JSON."""
    named = files(run_cli.folder, simulated=True)
    done = run_cli("estimate", "--images", "1e5", *named)
    assert done.exit == 0, done.stderr
    assert done.stdout.splitlines()[0].endswith(
        "25 times the largest size that was measured (simulated: speeds mean nothing)"
    )
    assert done.stdout.splitlines()[-1].startswith("simulated: ")
    assert "cost: unknown" in done.stdout  # nobody said what these files were measured on
    assert run_cli("estimate", "--images", "1e5", *named, "--json").json["simulated"] is True


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--images", "60e9"), "--from"),
        (("--accel", "t4", "--beyond"), "--beyond needs --from"),
        (("--test-images", "60e9"), "--from"),
        (("--from", "e-7k2m9x"), "--images"),
        (("--images", "1e6", "--from", "x", "--max-hours", "2"), "--max-hours"),
        (("--images", "1.5", "--from", "x"), "not a positive whole number"),
        (("--images", "0", "--from", "x"), "not a positive whole number"),
        (("--images", "1e6", "--from", "e-nobody"), "e-nobody"),
        (("--images", "1e6", "--from", "nowhere.json"), "nowhere.json"),
        (("--workload", "mnist-cnn"), "--accel"),
    ],
    ids=" ".join,
)
def test_half_a_question_is_a_usage_error(run_cli: Shell, flags: tuple[str, ...], says: str) -> None:
    """Exit 2, the missing half by name, and a next step."""
    done = run_cli("estimate", *flags)
    assert done.exit == 2
    assert says in done.stderr
    assert "next:" in done.stderr
