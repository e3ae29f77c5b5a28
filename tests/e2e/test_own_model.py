"""A user's own Keras file and the helper beside it on two accelerators, through the real command."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orchestrator.domain.runs import RunState, Stage
from tests.e2e.conftest import ROOT, Orchestrate
from tests.waiting import eventually
from trainer.record.record import load_record
from trainer.user_code import imported_tree

LAUNCH = ("launch", "--accel", "v5litepod-1,t4", "--workload", "./my_model.py", "--data-size", "512")


@pytest.mark.usefixtures("forked_job")
@pytest.mark.slow
@pytest.mark.timeout(700)
def test_what_was_launched_is_what_runs_and_is_compared(orchestrate: Orchestrate) -> None:
    """One sha256 in plan, ledger and records, though both files are edited after the launch; the pairing is fair."""
    for name in ("my_model.py", "blocks.py"):
        shutil.copy(ROOT / "examples/own_model" / name, orchestrate.folder)
    tree = imported_tree(orchestrate.folder / "my_model.py")
    assert sorted(tree.files) == ["blocks.py", "my_model.py"]
    launched = orchestrate.run(*LAUNCH, "--yes", "--detach")
    assert launched.code == 0, launched.err
    assert f"code: my_model.py (2 files, sha256 {tree.sha256[:12]})" in launched.err
    with (orchestrate.folder / "my_model.py").open("a") as file:
        file.write("raise SystemExit('edited')\n")
    (orchestrate.folder / "blocks.py").unlink()

    eventually(lambda: all(run.stage is Stage.DONE for run in orchestrate.runs()), timeout_s=500)
    runs = orchestrate.runs()
    assert [(run.state, run.error) for run in runs] == [(RunState.SUCCEEDED, None)] * 2
    assert {run.spec.code.sha256 for run in runs if run.spec.code} == {tree.sha256}
    codes = [load_record(Path(run.record or "")).code for run in runs]
    assert {(code.sha256, code.files) for code in codes if code} == {(tree.sha256, 2)}
    found = orchestrate.run("compare", "--json").json
    [pairing] = found["pairings"]
    assert (pairing["workload"], pairing["faster_runs"], pairing["slower_runs"]) == ("my_model.py", 1, 1)
    assert pairing["verdict"] == "observation", "one run each; an unfair pairing would be invalid"

    with (orchestrate.folder / "my_model.py").open("w") as file:
        file.write("import keras\ndef build_model(image_shape, classes):\n")
        file.write("    return keras.Sequential([keras.Input(image_shape), keras.layers.Flatten()])\n")
    refused = orchestrate.run(*LAUNCH, "--yes", "--json")
    assert refused.code == 2
    assert "outputs of shape [None, 784], not [batch, .., 10]" in refused.err
    assert len(orchestrate.runs()) == 2
