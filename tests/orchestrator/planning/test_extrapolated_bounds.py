"""What binds an extrapolated run: the device's own limits, its memory, its input."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from orchestrator.domain.hardware import chips
from orchestrator.errors import UsageError
from orchestrator.ledger.ledger import Ledger
from orchestrator.report.sources import Source
from tests.orchestrator.planning.measured_sweeps import PLAIN, TESTS, answer, ask, bound, sweep


def test_three_bounds_bind_each_where_it_is_the_longest(ledger: Ledger) -> None:
    """Little data: what a run takes at any size. Slow samples: compute. Large and quick ones: the network."""
    slow = sweep(1e-3)
    quick = sweep(2e-7, 0.0, parameters={"precision": "float16"})  # 0.2 µs a sample: 3.9 GB/s of images
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
    assert (one.slowest, one.lever) == ("input", "")
    assert bound(one, "input") == pytest.approx(3 * 1e8 * one.line.sample_s, rel=1e-4)
    assert "as measured: the device waited 50%" in one.bounds[0].basis
    assert one.interval_s[0] < one.law_interval_s[0] < one.seconds, "what was measured is no floor"


@pytest.mark.parametrize("eval_s", [0.9, 1.1], ids=["quick tests", "slow tests"])
def test_a_starved_sweep_is_bound_by_its_input_whatever_its_test_samples_take(ledger: Ledger, eval_s: float) -> None:
    """A test sample a little slower or faster than a training sample decides nothing; data of a device is not read."""
    fed = {"noise": 1e-4, "eval_s": eval_s * 1e-3 * TESTS}
    one = answer(ledger, sweep(1e-3, wait=0.5, **fed), 1e8, test_images=10**8)
    assert one.binds == "input"
    assert [each.name for each in one.bounds] == ["input", "fixed cost"], "one rate is one bound"
    assert answer(ledger, sweep(1e-3, wait=0.05, **fed), 1e8, test_images=10**8).binds == "compute"
    assert answer(ledger, sweep(1e-3, wait=0.5, cache="device", **fed), 1e6, test_images=10**6).binds == "compute"


def test_data_that_leaves_device_memory_is_streamed_and_the_time_is_a_lower_limit(ledger: Ledger) -> None:
    """A quarter of a T4's 16 GiB is what the trainer places there at most; 16 GiB hosts keep half."""
    here = sweep(1e-4, cache="device")
    fits = answer(ledger, here, 1e6)
    assert not any("kept its samples" in reason for reason in fits.at_least)
    moved = answer(ledger, here, 7e6)
    assert "would be kept in host memory" in moved.at_least[0]
    streamed = answer(ledger, here, 5e7)
    assert "device memory, where 39.2 GB do not go: they would be streamed" in streamed.at_least[0]
    assert "--cache none" in streamed.at_least[0]
    too_small = [place.name for place in streamed.places if not place.fits]
    assert too_small == ["one device's memory", "half of the host's memory"]


@pytest.mark.parametrize(("accelerator", "gib"), [("v2-8", 8), ("v3-8", 16), ("v4-8", 32), ("t4x4", 16)])
def test_a_replica_has_the_memory_of_its_core_where_a_chip_has_two(ledger: Ledger, accelerator: str, gib: int) -> None:
    """Samples lie on every replica's device as a whole: on a core of a v2 or v3 chip, half of the chip's memory."""
    one = answer(ledger, sweep(1e-5, accelerator=accelerator), 1e6)
    [device] = [place for place in one.places if place.name == "one device's memory"]
    assert device.there_bytes == gib * 2**30
    assert device.needed_bytes == (1e6 + TESTS) * (784 * 4 + 4), "as float32, with its label"


def test_sixty_billion_images_do_not_fit_into_the_memory_of_the_host(ledger: Ledger) -> None:
    """8 bytes a sample for the order of an epoch are 480 GB; the hosts of the sweep have 17: memory binds."""
    one = answer(ledger, sweep(1e-5, parameters={"precision": "float16"}), 60e9, test_images=10 * 10**9, epochs=20)
    assert (one.binds, one.slowest) == ("memory", "dispatch")
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
    assert one.roofline.peak_s == pytest.approx(60e9 * 20 * 12_860_416 / 65e12)


def mlp(step_s: float, batch: int, **more: Any) -> list[Source]:
    """A sweep of the MLP with Adam on a v3-8: 680,310 weights, 3,444,400 operations a sample, steps of `step_s`."""
    weights = 4 * 680_310
    compute = PLAIN.compute.model_copy(update={"flops_per_sample": 3_444_400})
    memory = PLAIN.memory.model_copy(update={"parameter_bytes": weights, "optimizer_bytes": 2 * weights})
    chosen = {"global_batch_size": batch, "precision": "bfloat16"}
    return sweep(step_s / batch, 0.0, accelerator="v3-8", compute=compute, memory=memory, parameters=chosen, **more)


def test_short_steps_of_an_idle_device_are_dispatch_and_a_larger_batch_is_the_lever(ledger: Ledger) -> None:
    """600 µs a step of 24 samples: 8,333 h beside 2.33 h at the peak and 672 h for Adam's traffic alone.

    Each core of a v3 has half of a chip's 900 GB/s; a step moves eight times 2.72 MB.
    """
    one = answer(ledger, mlp(600e-6, 24, noise=1e-4), 60e9, epochs=20, test_images=0)
    limits = one.roofline
    assert (one.slowest, limits.binds) == ("dispatch", "dispatch")
    assert limits.training_s / 3600 == pytest.approx(8333, rel=0.02)
    assert limits.peak_s == pytest.approx(60e9 * 20 * 3_444_400 / 492e12)
    assert limits.utilisation == pytest.approx(2.8e-4, rel=0.02)
    assert limits.bandwidth_s == pytest.approx(60e9 * 20 / 24 * 8 * 4 * 680_310 / 450e9)
    assert one.lever.startswith("a larger batch: a step of 24 samples takes 600 µs,")
    assert "of which the device needs 48.4 µs; at most 12." in one.lever
    assert "`launch --batch-size 24,96,384`" in one.lever


def test_the_higher_of_the_devices_own_limits_binds_where_it_is_busy(ledger: Ledger) -> None:
    """Near Adam's traffic it is the memory, and a larger batch helps; with large batches it is the operations."""
    moved = answer(ledger, mlp(60e-6, 24), 1e9)
    assert moved.binds == "memory bandwidth"
    assert moved.lever.startswith("a larger batch: ")
    busy = answer(ledger, mlp(2e-3, 240_000, pixels=1), 2e9, epochs=20)
    assert busy.binds == "compute"
    assert busy.roofline.utilisation == pytest.approx(240_000 * 3_444_400 / 492e12 / 2e-3, rel=0.02)
    assert busy.lever.startswith("more or faster chips, or fewer operations; on this one at most 1.1")
    assert answer(ledger, mlp(2.0, 24_000), 1e9).lever.startswith("a profile (`python -m trainer --profile`), which")


def peaked(flops_per_s: float | None) -> dict[str, Any]:
    """What a float32 record on a GPU has of its peak; 12.86 MFLOP a sample."""
    return {"compute": PLAIN.compute.model_copy(update={"peak_flops_per_s": flops_per_s}), "noise": 1e-4}


def test_utilisation_is_of_the_peak_at_the_precision_of_the_runs(ledger: Ledger) -> None:
    """70 % of a T4's 8.1 TFLOP/s in float32 is no idle device, which 8.7 % of its 65 in float16 would be."""
    flops = 12_860_416
    sample_s = flops / (0.7 * 8.1e12)
    for peak in (8.1e12, None):  # from the record, and from the catalog where an older record has none
        limits = answer(ledger, sweep(sample_s, 0.0, **peaked(peak)), 1e9).roofline
        assert limits.utilisation == pytest.approx(0.7, rel=0.01)
        assert limits.binds == "compute"
    host = sweep(sample_s, 0.0, accelerator=None, **peaked(8.1e12))
    assert answer(ledger, host, 1e9).roofline.utilisation == pytest.approx(0.7, rel=0.01), "a machine without catalog"


def test_a_peak_of_another_precision_is_a_floor_and_no_utilisation(ledger: Ledger) -> None:
    """An L4 computes float32 in TF32, whose peak nobody has; none of its runs is faster than float16's 121 TFLOP/s."""
    one = answer(ledger, sweep(2e-6, 0.0, accelerator="l4", **peaked(None)), 1e9)
    limits = one.roofline
    assert (limits.peak_s, limits.utilisation, limits.binds, one.lever) == (None, None, "compute", "")
    assert limits.floor_s == pytest.approx(3e9 * 12_860_416 / 121e12)
    with pytest.raises(UsageError, match="faster than the peak"):
        answer(ledger, sweep(5e-8, 0.0, accelerator="l4", **peaked(None)), 1e9)


@pytest.mark.parametrize(("kind", "numbers"), [("tpu", 4), ("gpu", 4), ("cpu standing in for gpu", 1)])
def test_what_lies_on_a_device_is_no_measure_of_the_host(ledger: Ledger, kind: str, numbers: int) -> None:
    """There each byte of an image is a float32: 784 bytes in host memory, 3,136 on a TPU or GPU."""
    assert PLAIN.device is not None
    device = PLAIN.device.model_copy(update={"kind": kind})
    memory = PLAIN.memory.model_copy(update={"data_bytes_on_device": 0})
    made = [
        replace(source, record=source.record.model_copy(update={"device": device, "memory": memory.model_copy(update={
            "data_bytes_on_device": (source.record.parameters.train_samples + TESTS) * (784 * numbers + 4)})}))
        for source in sweep(1e-5, cache="device")
    ]  # fmt: skip
    places = {place.name: place.needed_bytes for place in answer(ledger, made, 1e6).places}
    samples = 1e6 + TESTS
    assert places["half of the host's memory"] == places["boot disk"] == pytest.approx(samples * 784)
    assert places["one device's memory"] == pytest.approx(samples * (784 * 4 + 4))


def test_limits_of_a_device_that_was_not_there_say_nothing(ledger: Ledger) -> None:
    """A simulated run is a CPU's; an unknown machine has no bandwidth; an old record no sizes of variables."""
    pretended = answer(ledger, mlp(600e-6, 24, simulated=True), 1e9)
    assert (pretended.slowest, pretended.lever) == ("compute", "")
    assert (pretended.roofline.peak_s, pretended.roofline.utilisation) == (None, None)
    memory = PLAIN.memory.model_copy(update={"parameter_bytes": None, "optimizer_bytes": None})
    assert answer(ledger, sweep(1e-3, memory=memory), 1e8).roofline.bandwidth_s is None


def test_every_chip_has_a_bandwidth_that_its_memory_could_have() -> None:
    """All of it is read in 10 to 60 ms on every chip but the T4, L4 and the v5p: a slip of a digit would show."""
    for chip in chips().values():
        seconds = chip.memory_gib * 2**30 / (chip.memory_gb_per_s * 1e9)
        assert 0.01 < seconds < 0.1, chip.name


def test_what_is_faster_than_the_devices_peak_did_not_run_on_it(ledger: Ledger) -> None:
    """12.86 MFLOP a sample at 65 TFLOP/s are 0.2 µs; 0.1 µs a sample were measured."""
    with pytest.raises(UsageError, match="faster than the peak"):
        ask(ledger, sweep(1e-7, 0.0, parameters={"precision": "float16"}), 1e9)
