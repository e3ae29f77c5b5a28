"""From records to time and cost of any data size: the true value is in the interval, and the bound is right."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from orchestrator.domain.accelerators import Provisioning
from orchestrator.domain.prices import catalog_prices
from orchestrator.domain.published import claim_about
from orchestrator.errors import UsageError
from orchestrator.ledger.credit import Credit
from orchestrator.ledger.ledger import Ledger
from orchestrator.money.guard import money_view
from orchestrator.planning.extrapolate import Answer, Extrapolation, ExtrapolationRequest, extrapolate
from orchestrator.report.sources import Source
from tests.records import make_record
from trainer.record.record import Record

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
PLAIN = make_record(epoch_s=(1.0, 1.0, 1.0))
TESTS = 256


def record(
    samples: int,
    steady_s: float,
    *,
    order: int = 0,
    eval_s: float = 0.25,
    once_s: float = 50.0,
    cache: str = "none",
    wait: float = 0.0,
    pixels: int = 784,
    **changes: Any,
) -> Record:
    """A run of three equal epochs; without `cache` its samples were streamed, so that its line holds at any size."""
    epoch = PLAIN.epochs[2].model_copy(
        update={"wall_s": steady_s, "eval_s": eval_s, "samples": samples, "input_wait_s": wait * steady_s}
    )
    resident = cache == "device"
    chosen = {"train_samples": samples, "cache": cache, "input": "device-resident" if resident else "streamed"}
    parts: dict[str, Any] = {
        "started_at": NOW + timedelta(minutes=order),
        "epochs": (epoch, epoch, epoch),
        "parameters": PLAIN.parameters.model_copy(update={**chosen, **changes.pop("parameters", {})}),
        "timings": PLAIN.timings.model_copy(
            update={"steady_epoch_s": steady_s, "steady_epochs": 2, "total_s": once_s + 3 * (steady_s + eval_s)}
        ),
        "data": PLAIN.data and PLAIN.data.model_copy(update={"bytes_read": 3 * (samples + TESTS) * pixels}),
        "memory": PLAIN.memory.model_copy(update={"data_bytes_on_device": (samples + TESTS) * (pixels + 4)}),
    }
    return PLAIN.model_copy(update={**parts, **changes})


def sweep(
    sample_s: float = 1e-3,
    fixed_s: float = 0.1,
    noise: float = 0.01,
    seed: int = 1,
    accelerator: str | None = "t4",
    **more: Any,
) -> list[Source]:
    """Three sizes, three repeats each, of the law `fixed_s + sample_s x samples` an epoch."""
    rng, made = random.Random(seed), []
    for order, size in enumerate((1000, 2000, 4000) * 3):
        steady_s = (fixed_s + sample_s * size) * (1 + rng.gauss(0, noise))
        made.append(
            record(
                size,
                steady_s,
                order=order,
                eval_s=0.25 * (1 + rng.gauss(0, noise)),
                once_s=50 * (1 + rng.gauss(0, noise)),
                **more,
            )
        )
    return [Source(f"/{order}", each, accelerator) for order, each in enumerate(made)]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path / "ledger.db")
    yield made
    made.close()


def ask(ledger: Ledger, sources: list[Source], images: float, **asked: Any) -> Extrapolation:
    """What `estimate --images .. --from ..` computes, with $300 of credit."""
    flags: dict[str, Any] = {
        "test_images": None, "epochs": 3, "workload": None, "accelerators": (), "zones": (),
        "provisioning": Provisioning.ON_DEMAND,
    }  # fmt: skip
    request = ExtrapolationRequest(images=int(images), **{**flags, **asked})
    money = money_view(ledger, Credit(amount_usd=Decimal(300), stated_at=NOW), NOW)
    return extrapolate(request, sources, ledger, catalog_prices(), money)


def answer(ledger: Ledger, sources: list[Source], images: float, **asked: Any) -> Answer:
    [one] = ask(ledger, sources, images, **asked).answers
    return one


def bound(one: Answer, name: str) -> float:
    return next(each.seconds for each in one.bounds if each.name == name)


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


def test_three_bounds_bind_each_where_it_is_the_longest(ledger: Ledger) -> None:
    """Little data: what a run takes at any size. Slow samples: compute. Large and quick ones: the network."""
    slow, quick = sweep(1e-3), sweep(2e-7, 0.0)  # 0.2 µs a sample: 3.9 GB/s of images
    assert answer(ledger, slow, 8000).binds == "fixed cost"
    assert answer(ledger, slow, 1e8).binds == "compute"
    read = answer(ledger, quick, 2e9)
    assert read.binds == "input"
    # 2e9 images of 784 bytes and 256 test images, three times, at 30 Gbit/s.
    assert bound(read, "input") == pytest.approx(3 * 2e9 * 784 / 3.75e9, rel=1e-6)
    assert read.interval_s[0] >= bound(read, "input")


def test_measured_starvation_is_an_input_bound_at_the_measured_rate(ledger: Ledger) -> None:
    """A streamed sweep whose device waited for half of the time was bound by its input, and so is what follows."""
    one = answer(ledger, sweep(1e-3, wait=0.5), 1e8)
    assert one.slowest == "input"
    assert bound(one, "input") == pytest.approx(3 * 1e8 * one.line.sample_s, rel=1e-4)
    assert "as measured: the device waited 50%" in one.bounds[1].basis
    assert one.interval_s[0] < one.law_interval_s[0] < one.seconds, "what was measured is no floor"


def test_data_that_leaves_device_memory_is_streamed_and_the_time_is_a_lower_limit(ledger: Ledger) -> None:
    """2 GiB is what the trainer places on a device at most: 2.7 million images of 784 bytes; 16 GiB hosts keep half."""
    here = sweep(1e-4, cache="device")
    fits = answer(ledger, here, 1e6)
    assert not any("kept its samples" in reason for reason in fits.at_least)
    moved = answer(ledger, here, 5e6)
    assert "would be kept in host memory" in moved.at_least[0]
    streamed = answer(ledger, here, 5e7)
    assert "device memory, where 39.2 GB do not go: they would be streamed" in streamed.at_least[0]
    assert "--cache none" in streamed.at_least[0]
    too_small = [place.name for place in streamed.places if not place.fits]
    assert too_small == ["one device's memory", "half of the host's memory"]


def test_sixty_billion_images_do_not_fit_into_the_memory_of_the_host(ledger: Ledger) -> None:
    """8 bytes a sample for the order of an epoch are 480 GB; the hosts of the sweep have 17: memory binds."""
    one = answer(ledger, sweep(1e-5), 60e9, test_images=10 * 10**9, epochs=20)
    assert (one.binds, one.slowest) == ("memory", "compute")
    assert "480 GB" in one.lacks
    assert one.factor == 15e6
    bucket = one.places[-1]
    assert bucket.name == "bucket"
    assert bucket.needed_bytes == pytest.approx(70e9 * 784)
    assert one.cost is not None
    months = Decimal(max(30, -(-int(one.seconds) // 86400) + 1)) * 24 / 730
    gib = Decimal(70 * 10**9 * 784) / 2**30
    assert one.cost.storage_usd == pytest.approx(gib * months * Decimal("0.02"), rel=Decimal("0.01"))
    assert one.cost.interval_usd[0] < one.cost.usd < one.cost.interval_usd[1]
    assert not one.cost.fits
    # A T4's 65 TFLOP/s would need 60e9 x 20 x 12.86 MFLOP of them.
    assert one.peak_s == pytest.approx(60e9 * 20 * 12_860_416 / 65e12)


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


def test_what_is_faster_than_the_devices_peak_did_not_run_on_it(ledger: Ledger) -> None:
    """12.86 MFLOP a sample at 65 TFLOP/s are 0.2 µs; 0.1 µs a sample were measured."""
    with pytest.raises(UsageError, match="faster than the peak"):
        ask(ledger, sweep(1e-7, 0.0), 1e9)


def test_the_published_claim_is_hours_and_is_never_used() -> None:
    """135 s x 1e6 / (10,752 x 3,600), three faults."""
    claim = claim_about("mnist-mlp")
    assert claim is not None
    assert claim.quotient == pytest.approx(3.488, abs=1e-3)
    assert [word in fault for word, fault in zip(("hours", "768 x 14", "47 TB"), claim.faults, strict=True)] == [
        True
    ] * 3
    assert claim_about("mnist-cnn") is None
