"""What does a command say that was interrupted while another process drives the run?"""

from __future__ import annotations

import pytest

from orchestrator.cli.driving import conclude
from orchestrator.pipeline import run_lock
from tests.unit.world import World


def test_run_of_another_process_goes_on_and_is_not_called_unproven(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C of `attach` neither stops nor reports what it only watched: exit 130 and how to end it."""
    [run] = world.admit("t4")
    with run_lock(world.services, run) as locked:
        assert locked
        world.stop.set()
        watched = world.drive([run])
        code = conclude(world.services, watched, as_json=False)
    said = capsys.readouterr().err
    assert (code, world.ledger.run(run.id).stop_requested) == (130, False)
    assert said == f"{run.id} goes on: another orchestrate process drives it; `orchestrate teardown {run.id}` ends it\n"
