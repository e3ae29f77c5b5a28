"""Records of all hosts of a slice: how fast each was, through the real command, with real collectives."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT, Orchestrate
from trainer.record.record import load_record

LAUNCH = ("launch", "--accel", "v4-16", "--engine", "tensorflow,jax", "--workload", "./uneven.py", "--batch-size", "16")


@pytest.mark.verify
@pytest.mark.usefixtures("forked_job")
@pytest.mark.timeout(480)
def test_the_host_whose_input_is_slow_is_found_by_both_engines(orchestrate: Orchestrate) -> None:
    """Two hosts of a v4-16, one of which waits 100 ms for each batch; samples of both together count once."""
    shutil.copy(ROOT / "tests/trainer/plugins/uneven_input.py", orchestrate.folder / "uneven.py")
    done = orchestrate.run(*LAUNCH, "--yes", "--json")
    assert (done.code, done.json["billable_remaining"]) == (0, 0), done.err
    found = orchestrate.run("compare", "--json").json
    assert len(found["runs"]) == 2
    for run in found["runs"]:
        first = load_record(Path(run["path"]))
        other = load_record(Path(run["path"]).parents[1] / "a1-w1" / "record.json")
        assert (first.worker, other.worker) == (0, 1)
        assert [epoch.loss for epoch in first.epochs] == [epoch.loss for epoch in other.epochs]
        assert first.epochs[-1].samples == 96  # of both hosts: the epoch of either record is the whole
        assert run["samples_per_s"] == pytest.approx(96 / run["steady_epoch_s"])
        assert [(each["worker"], each["is_straggler"]) for each in run["workers"]] == [(0, False), (1, True)]
        assert run["workers"][1]["excess_s"] > 0.5 * 6 * 0.1
        shown = orchestrate.run("status", run["run"])
        assert "worker 1 is a straggler: it waits" in shown.out
        [experiment] = orchestrate.run("status", run["run"], "--json").json["experiments"]
        assert [each["is_straggler"] for each in experiment["runs"][0]["workers"]] == [False, True]
    notes = [note for note in found["notes"] if "worker 1 is a straggler" in note]
    assert len(notes) == 2
