"""Does a comparison claim no more than was measured?"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from orchestrator.errors import UsageError
from orchestrator.report.comparison import Comparison, compare_sources, epoch_usd
from orchestrator.report.measured import Source, measured
from orchestrator.report.table import sheets
from tests.records import SAMPLES, make_record

ONE_EACH = "one run each: no interval, so this is an observation, not a verdict"


def source(run: str, accelerator: str, **record: Any) -> Source:
    """A record as a run of the ledger has it, at $3.60 an hour."""
    return Source(f"/{run}", make_record(run, **record), accelerator, Decimal(2), Decimal("3.60"))


def compared(*sources: Source, **options: Any) -> Comparison:
    return compare_sources(sources, **options)


def differing(*sources: Source) -> list[str]:
    return [f"{check.name}: {check.detail}" for check in compared(*sources).fairness if check.outcome != "same"]


def test_figures_are_those_of_the_steady_epochs() -> None:
    """The first epoch is in none of them; an epoch costs the hourly rate for its time."""
    found = measured(source("r-a", "v3-8", epoch_s=(60.0, 2.0, 3.0, 2.5)), "r-a")
    assert (found.steady_epoch_s, found.steady_epochs) == (2.5, 3)
    assert found.sample_s == 2.5 / SAMPLES
    assert found.samples_per_s == SAMPLES / 2.5
    assert found.input_wait_share == pytest.approx(0.05)
    assert found.accuracy == pytest.approx(0.94)
    assert found.other_s == 60.0 - 3.0 - 4.0 - 1.5 - 12.5 - 0.5  # none of the record's steps are accounted for
    assert found.usd_per_steady_epoch == Decimal("0.0025")


def test_one_epoch_has_no_steady_figure_and_is_not_paired() -> None:
    """Null, never the first epoch in disguise."""
    found = compared(source("r-a", "v3-8", epoch_s=(6.0,)), source("r-b", "t4"))
    one = found.runs[0]
    assert (one.steady_epoch_s, one.sample_s, one.samples_per_s, one.usd_per_steady_epoch) == (None, None, None, None)
    assert found.pairings == ()
    assert found.notes[0] == "r-a (v3-8) has one epoch, so no steady one: not paired"


def test_one_run_each_is_an_observation_with_its_cost() -> None:
    """The slower one's time over the faster one's, and what an epoch cost on each."""
    [pair] = compared(source("r-a", "t4", epoch_s=(9, 5, 5)), source("r-b", "v3-8", epoch_s=(9, 2, 2))).pairings
    assert pair.sentence == (
        "mnist-cnn, global batch 256: steady epoch v3-8 2 s, t4 5 s: v3-8 was 2.50 times as fast, "
        f"at $0.0020 an epoch against $0.0050; {ONE_EACH}"
    )


def test_repeats_without_an_interval_are_no_verdict_either() -> None:
    """Medians over the runs; how many there were is said."""
    runs = [source(f"r-{n}", "t4", epoch_s=(9, seconds), seed=n) for n, seconds in enumerate((4, 5, 90))]
    runs += [source(f"r-{n + 3}", "v3-8", epoch_s=(9, 2), seed=n) for n in range(2)]
    found = compared(*runs)
    [pair] = found.pairings
    assert (pair.slower_s, pair.slower_runs, pair.faster_runs) == (5, 3, 2)
    assert pair.sentence.endswith("2 and 3 runs: no interval, so this is an observation, not a verdict")


def test_an_interval_that_is_handed_in_is_said() -> None:
    """The seam for the statistics: a function of the two accelerators' times."""

    def interval_of(slower: Sequence[float], faster: Sequence[float]) -> tuple[float, float]:
        return slower[0] / faster[0] - 0.5, slower[0] / faster[0] + 0.5

    runs = source("r-a", "t4", epoch_s=(9, 4)), source("r-b", "v3-8", epoch_s=(9, 2))
    [pair] = compared(*runs, interval_of=interval_of).pairings
    assert pair.interval == (1.5, 2.5)
    assert pair.sentence.endswith("; the ratio lies between 1.50 and 2.50")


def test_batches_are_paired_with_their_like() -> None:
    """A sweep gives one pairing a batch; without a common one the sentence says so, and the difference is named."""
    sweep = [source(f"r-{name}{batch}", name, batch=batch) for batch in (256, 512) for name in ("t4", "v3-8")]
    assert [pair.global_batch for pair in compared(*sweep).pairings] == [256, 512]
    assert differing(*sweep) == []
    pair = source("r-a", "t4", batch=256), source("r-b", "v3-8", batch=1024)
    assert compared(*pair).pairings[0].sentence.startswith("mnist-cnn, different global batches: ")
    assert differing(*pair) == ["global batch: t4 256, v3-8 1024"]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"seed": 7}, "seed: t4 0, v3-8 7"),
        ({"fingerprint": "b" * 64}, "data set: t4 aaaaaaaaaaaa, v3-8 bbbbbbbbbbbb"),
        ({"tensorflow": "2.19.0"}, "TensorFlow: t4 2.20.0, v3-8 2.19.0"),
        ({"epoch_s": (6.0, 2.0)}, "epochs: t4 4, v3-8 2"),
        ({"workload": "mnist-mlp"}, "workload: t4 mnist-cnn, v3-8 mnist-mlp"),
    ],
)
def test_what_was_not_the_same_is_named(change: dict[str, Any], line: str) -> None:
    """Each thing that makes the pairing unfair, with both values."""
    assert differing(source("r-a", "t4"), source("r-b", "v3-8", **change)) == [line]


def test_repeats_with_the_same_seeds_on_both_sides_are_no_difference() -> None:
    """Seeds differ within an accelerator by design."""
    runs = [source(f"r-{name}{seed}", name, seed=seed) for name in ("t4", "v3-8") for seed in (0, 1, 2)]
    assert differing(*runs) == []


def test_a_failed_run_is_shown_and_not_paired() -> None:
    """Its figures may be those of half a training."""
    found = compared(source("r-a", "t4", status="failed"), source("r-b", "v3-8"))
    assert found.pairings == ()
    assert found.notes[0] == "r-a (t4) failed: its figures are shown and not paired"
    assert [(*row[:4],) for row in sheets(found)[0].rows] == [
        ("r-a", "t4", "tpu x8", "failed"),
        ("r-b", "v3-8", "tpu x8", "succeeded"),
    ]


def test_simulated_speeds_are_marked_everywhere() -> None:
    """Titles and sentence, rows where others are not; the mix is refused, by the device's word too."""
    simulated = source("r-a", "t4", simulated=True), source("r-b", "v3-8", simulated=True, epoch_s=(9, 1))
    found = compared(*simulated)
    assert all(sheet.title.endswith("(simulated: speeds mean nothing)") for sheet in sheets(found))
    assert all(sheet.columns[:2] == ("run", "accelerator") and "device" not in sheet.columns for sheet in sheets(found))
    assert found.pairings[0].sentence.endswith(f"{ONE_EACH}; simulated: speeds mean nothing")
    with pytest.raises(UsageError, match="simulated and real runs cannot be compared: r-a ran on the local cloud"):
        compared(simulated[0], source("r-c", "v3-8"))
    assert compared(simulated[0], source("r-c", "v3-8"), force=True).simulated


def test_records_of_one_run_id_are_told_apart_by_their_paths() -> None:
    """Two files from elsewhere may bear the same id."""
    record = make_record("local")
    assert [run.name for run in compared(Source("a.json", record), Source("b.json", record)).runs] == [
        "a.json",
        "b.json",
    ]


def test_a_tiny_cost_is_not_shown_as_nothing() -> None:
    """An epoch of a second on a cheap GPU costs a hundredth of a cent."""
    assert epoch_usd(Decimal("0.000042")) == "$0.000042"
    assert epoch_usd(Decimal("0.25")) == "$0.25"
