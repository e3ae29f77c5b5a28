"""A sample of the hostile inputs; `python -m tests.verification.fuzz` tries 100,000."""

from __future__ import annotations

import pytest

from tests.verification.fuzz.__main__ import fuzz
from tests.verification.fuzz.targets import TARGETS, Target


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.__name__)
def test_hostile_inputs_end_in_a_value_or_a_sentence(target: Target) -> None:
    """No traceback, nothing written elsewhere, nothing that controls the terminal, no tag in the page."""
    assert list(fuzz(target, 40, seed=0)) == []
