"""The order of the suite: what takes longest goes first, so that no worker is left alone with it at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LONGEST_FIRST = (
    "e2e/test_crashes.py", "e2e/test_laptop_gone.py", "e2e/test_main_job.py", "e2e/test_host.py",
    "trainer/test_resume_many.py", "trainer/test_training.py", "e2e/test_doctor_live.py", "e2e/test_refusals.py",
    "trainer/test_resume.py", "simulation/test_money_campaigns.py", "orchestrator/cli/test_doctor.py",
    "trainer/workloads/test_models.py", "trainer/test_small_runs.py", "e2e/test_sweep.py",
    "infra/localcloud/test_process.py",
    "contract/test_kill_switch.py", "e2e/test_extend.py", "infra/localcloud/test_gcloud.py",
    "contract/test_ledger_against_meter.py", "contract/test_vm_provider.py", "infra/localcloud/test_tensorflow_gs.py",
)  # fmt: skip
"""Modules by the time they take, measured; all others follow in the order of their names."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort modules; tests stay in the order of their file. `make test` keeps xdist from sorting again."""
    places = {TESTS / name: place for place, name in enumerate(LONGEST_FIRST)}
    assert all(path.exists() for path in places), "LONGEST_FIRST names a module that is not there"
    items.sort(key=lambda item: places.get(item.path, len(places)))
