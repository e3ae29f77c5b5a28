"""Runs whose batches differ, by their own search or by number: paired, and compared for all training samples."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from orchestrator.report.compare import compare_sources
from tests.orchestrator.report.test_planted_unfairness import Change, both, moved, of, run, side, without
from tests.records import SAMPLES, settled
from trainer.record.record import Record
from trainer.record.section import BatchSearch, BatchTry


def searched(batch: int) -> Change:
    """Found by its own search; an epoch of whole batches leaves out what is over, and takes as much less time."""
    search = BatchSearch(global_batch=batch, tries=(BatchTry(global_batch=batch, step_s=1.0),), ended="1 does not fit")
    trained = SAMPLES // batch * batch

    def change(record: Record) -> Record:
        found = of("parameters", batch_search=search, global_batch_size=batch)(record)
        epochs = [
            e.model_copy(update={"samples": trained, "wall_s": e.wall_s * trained / SAMPLES}) for e in found.epochs
        ]
        missing = without(found.missing, "parameters.batch_search")
        return settled(found.model_copy(update={"epochs": tuple(epochs), "missing": missing}))

    return change


def by_number(batch: int) -> Change:
    """The same epochs, of a batch that somebody stated."""

    def change(record: Record) -> Record:
        found = searched(batch)(record)
        return of("parameters", batch_search=None)(found)

    return change


@pytest.mark.parametrize(
    ("left", "right"),
    [(searched(384), by_number(384)), (by_number(384), searched(256)), (by_number(384), by_number(256))],
    ids=["auto-384", "384-auto", "384-256"],
)
def test_epochs_that_leave_out_samples_make_nobody_faster(left: Change, right: Change) -> None:
    """Equally fast machines, one of which trained 768 of 1,024 samples: time and dollars are those of all of them."""
    rate = Decimal("3.60")
    sources = [replace(each, usd_per_hour=rate) for each in (*side("t4", left), *side("l4", right))]
    [pair] = compare_sources(sources).pairings
    assert (pair.verdict, pair.ratio) == ("inconclusive", pytest.approx(1.0))
    assert pair.faster_s == pytest.approx(pair.slower_s) == pytest.approx(2.01, abs=0.01)
    assert pair.epoch_usd_ratio == pytest.approx(1.0)


def test_the_fixed_part_of_a_cost_is_what_the_epochs_that_took_place_leave_of_it() -> None:
    """$0.10 and 2 s for all samples against $0.05 and 4 s, at $0.001 a second: equal after 25 epochs of 1,024.

    The first trained 768 of them an epoch, in 1.5 s; its own evaluations are in its cost as often as they took place.
    """
    sources = []
    for name, batch, epoch_s, fixed_usd in (("t4", 384, 2.0, "0.10"), ("l4", 256, 4.0, "0.05")):
        made = run(name, 0, searched(batch), epoch_s=(9.0, epoch_s, epoch_s, epoch_s))
        last = made.record.epochs[-1]
        epoch_usd = Decimal(repr(last.wall_s + (last.eval_s or 0.0))) / 1000
        sources.append(replace(made, usd=Decimal(fixed_usd) + 4 * epoch_usd, usd_per_hour=Decimal("3.60")))
    [pair] = compare_sources(sources).pairings
    [cost] = [each for each in pair.end_to_end.break_even if each.of == "cost"]
    assert (cost.less_above, cost.samples) == ("t4", pytest.approx(25 * SAMPLES))


def test_the_best_batch_of_each_is_compared_with_the_best_of_the_other() -> None:
    """Paired as auto, beside a pairing by number; listed as a choice; epochs count for all samples."""
    assert SAMPLES % 384 > 0 == SAMPLES % 256
    later = moved(timedelta(hours=1))
    sources = side("t4", both(searched(384), later)) + side("l4", both(searched(256), later))
    sources += side("t4") + side("l4")
    found = compare_sources(sources)
    titles = [pair.sentence.partition(":")[0] for pair in found.pairings]
    assert titles == ["mnist-cnn, global batch 256", "mnist-cnn, each at its best batch"]
    assert [pair.ratio for pair in found.pairings] == [pytest.approx(1.0), pytest.approx(1.0)]
    [check] = [check for check in found.fairness if check.name == "global batch"]
    assert check.outcome == "differs"
    assert "t4 384, l4 256; by choice, each device at its best (--batch-size auto): see test accuracy" in check.detail
