"""From records to time and cost of any data size: the true value is in the interval, and the bound is right."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from statistics import mean
from typing import Any

import pytest

from orchestrator.domain.published import claim_about
from orchestrator.errors import UsageError
from orchestrator.ledger.ledger import Ledger
from orchestrator.report.sources import Source
from tests.orchestrator.planning.measured_sweeps import TESTS, answer, ask, record, sweep


@pytest.mark.slow
def test_a_known_law_is_recovered_from_records_in_93_to_97_of_100_cases(ledger: Ledger) -> None:
    """Training, evaluation and what a run takes once, at sizes where each of them counts most."""
    inside: dict[float, list[bool]] = {1e3: [], 1e6: [], 60e9: []}
    rng, refused = random.Random(5), 0
    for case in range(400):
        sample_s, fixed_s, noise = 10 ** rng.uniform(-4, -2), rng.uniform(0, 1), rng.uniform(0.005, 0.08)
        images = rng.choice(list(inside))
        try:
            runs = sweep(
                sample_s, fixed_s, noise, case + 9999, accelerator=None
            )  # nothing to price: that takes longest
            one = answer(ledger, runs, images, epochs=20, test_images=int(images / 6))
        except UsageError:
            refused += 1
            continue
        truth = 50 + 20 * (fixed_s + sample_s * images + 0.25 / TESTS * int(images / 6))
        inside[images].append(one.law_interval_s[0] <= truth <= one.law_interval_s[1])
    assert 0.93 <= mean(itertools.chain(*inside.values())) <= 0.97
    assert min(mean(of_size) for of_size in inside.values()) > 0.9
    assert refused <= 20


def test_accelerators_stand_side_by_side_and_a_refused_one_hides_no_other(ledger: Ledger) -> None:
    """The one whose runs are no line is named with the reason; when all are, the command fails."""
    bent = [
        Source(f"/b{n}", record(size, 1e-3 * size + 1e-6 * size**2, order=n), "v3-8")
        for n, size in enumerate((1000, 2000, 4000) * 3)
    ]
    found = ask(ledger, [*sweep(), *bent], 1e6)
    assert [one.accelerator for one in found.answers] == ["t4"]
    assert [(each.accelerator, "straight line" in each.reason) for each in found.refused] == [("v3-8", True)]
    with pytest.raises(UsageError, match="v3-8: time does not grow along a straight line"):
        ask(ledger, bent, 1e6)
    both = ask(ledger, [*sweep(), *sweep(5e-4, accelerator="v3-8")], 1e6, accelerators=("v3-8",))
    assert [one.accelerator for one in both.answers] == ["v3-8"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"workload": "mnist-mlp"}, "workloads: mnist-cnn, mnist-mlp"),
        ({"simulated": True}, "kinds: real, simulated"),
        ({"parameters": {"global_batch_size": 512}}, "global batches: 256, 512"),
        ({"parameters": {"precision": "bfloat16"}}, "precisions: float32, bfloat16"),
        ({"cache": "device"}, "places of their samples"),
    ],
    ids=str,
)
def test_runs_that_differ_in_more_than_their_size_are_refused(
    ledger: Ledger, change: dict[str, Any], says: str
) -> None:
    """An error that names both values."""
    other = Source("/other", record(8000, 8.0, order=20, **change), "t4")
    with pytest.raises(UsageError, match=says):
        ask(ledger, [*sweep(), other], 1e6)


def test_runs_that_cannot_be_used_are_named(ledger: Ledger) -> None:
    """A failed one, one with a single epoch, and a copy, which is no repeat; without them there is still a sweep."""
    failed = Source("/f", record(8000, 1.0, run_id="r-failed", status="failed"), "t4")
    single = record(8000, 1.0, run_id="r-single")
    single = single.model_copy(update={"timings": single.timings.model_copy(update={"steady_epoch_s": None})})
    copy = replace(sweep()[0], path="/copy")
    found = ask(ledger, [*sweep(), failed, Source("/s", single, "t4"), copy], 1e6)
    assert [note.split()[0] for note in found.notes] == ["r-failed", "r-single", "r-aaaaaa"]
    assert (found.answers[0].line.largest, found.answers[0].runs) == (4000, 9)
    with pytest.raises(UsageError, match="r-failed is not used"):
        ask(ledger, [failed], 1e6)


def test_a_machine_without_a_price_has_an_unknown_cost_and_flags_must_match_the_runs(ledger: Ledger) -> None:
    """Never $0; --accel says what record files from elsewhere ran on."""
    anonymous = sweep(accelerator=None)
    assert answer(ledger, anonymous, 1e6).accelerator == "tpu x8"
    assert answer(ledger, anonymous, 1e6).cost is None
    assert "boot disk" not in {place.name for place in answer(ledger, anonymous, 1e12).places}, "nobody knows its size"
    named = answer(ledger, anonymous, 1e6, accelerators=("v3-8",))
    assert (named.accelerator, named.cost is not None) == ("v3-8", True)
    with pytest.raises(UsageError, match="no run on l4"):
        ask(ledger, sweep(), 1e6, accelerators=("l4",))
    with pytest.raises(UsageError, match="--workload: ucf101 is asked for, but --from has runs of mnist-cnn"):
        ask(ledger, sweep(), 1e6, workload="ucf101")


def test_the_published_claim_is_hours_and_is_never_used() -> None:
    """135 s x 1e6 / (10,752 x 3,600), three faults."""
    claim = claim_about("mnist-mlp")
    assert claim is not None
    assert claim.quotient == pytest.approx(3.488, abs=1e-3)
    assert [word in fault for word, fault in zip(("hours", "768 x 14", "47 TB"), claim.faults, strict=True)] == [
        True
    ] * 3
    assert claim_about("mnist-cnn") is None
