"""What the record of a small run says of precision, batch, memory, operations, latency and profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainer.process import Runs, Trainer, plugin, run_many

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runs of this file are written."""
    return tmp_path_factory.mktemp("small")


@pytest.fixture(scope="module")
def runs(folder: Path, warm_trainer: Trainer) -> Runs:
    """All runs of this file."""
    return run_many(
        warm_trainer,
        folder,
        {
            "resident": plugin("tiny"),
            "streamed": plugin("tiny", cache="none", profile=str(folder / "trace")),
            "walked": plugin("walked"),
            "bfloat16": plugin("tiny", precision="bfloat16"),
            "float16": plugin("tiny", precision="float16"),
            "per-replica": plugin("tiny", per_replica_batch=25, train_epochs=1),
        },
    )


def test_the_garbage_collector_does_not_walk_over_tensorflow_in_an_epoch(runs: Runs, folder: Path) -> None:
    """It would take 0.2 s for 380,000 objects. They are set aside after warm-up, and given back after a run."""
    assert runs["walked"].status == "succeeded"
    set_aside, *in_epochs = map(int, (folder / "walked" / "known_s.txt").read_text().split())
    assert set_aside == 0
    assert len(in_epochs) == 15
    assert max(in_epochs) < 50_000


def test_streamed_epochs_train_what_resident_ones_do(runs: Runs) -> None:
    """The same order, the same losses, and every one of 77 test samples counted once though batches are padded."""
    for resident, streamed in zip(runs["resident"].epochs, runs["streamed"].epochs, strict=True):
        assert streamed.loss == pytest.approx(resident.loss, rel=1e-5)
        assert streamed.test_loss == pytest.approx(resident.test_loss, rel=1e-5)
        assert streamed.test_accuracy * 77 == pytest.approx(round(streamed.test_accuracy * 77), abs=1e-5)
    assert runs["resident"].parameters.input == "device-resident"
    assert runs["resident"].epochs[-1].test_accuracy > 0.9


def test_precisions_train_and_say_what_they_are(runs: Runs) -> None:
    """Half precision, with loss scaling for float16, learns too; on a CPU auto is float32, with the reason."""
    chosen = runs["resident"].parameters
    assert (chosen.precision, chosen.precision_note) == ("float32", "auto: a CPU computes in float32")
    for name in ("bfloat16", "float16"):
        assert (runs[name].parameters.precision, runs[name].parameters.precision_note) == (name, "asked for")
        assert runs[name].epochs[-1].test_accuracy > 0.9
        assert runs[name].epochs[-1].loss != runs["resident"].epochs[-1].loss


def test_batch_of_each_replica_makes_the_global_batch(runs: Runs) -> None:
    """One replica: the same; the record states both."""
    chosen = runs["per-replica"].parameters
    assert (chosen.global_batch_size, chosen.per_replica_batch_size) == (25, 25)
    assert runs["per-replica"].epochs[0].steps == 8


def test_memory_is_told_apart(runs: Runs) -> None:
    """Parameters 64x16+16 + 16x4+4 in float32 and dropout's seed; Adam twice that; samples once, on the device."""
    memory = runs["resident"].memory
    weights = (64 * 16 + 16 + 16 * 4 + 4) * 4
    assert memory.parameter_bytes is not None
    assert weights <= memory.parameter_bytes <= weights + 16
    assert memory.optimizer_bytes is not None
    assert 2 * weights <= memory.optimizer_bytes <= 2 * weights + 32
    assert memory.data_bytes_on_device == (200 + 77) * (64 + 4)
    assert memory.host_before_bytes is not None
    assert memory.host_before_bytes <= memory.host_peak_bytes
    in_flight = runs["streamed"].memory.data_bytes_on_device
    assert in_flight == 4 * 10 * (64 + 4) + 4 * 77 * (64 + 8)


def test_operations_are_counted_in_the_graph(runs: Runs) -> None:
    """64x16 and 16x4 weights: 2 forward, 2 for their gradients, 2 for the hidden layer's; streamed as resident."""
    by_hand = 4 * 64 * 16 + 6 * 16 * 4
    for name in ("resident", "streamed", "float16"):
        assert runs[name].compute.flops_per_sample == by_hand
    assert runs["resident"].missing["compute.mfu"] == "unknown peak: cpu has no published one"


def test_latency_is_measured_at_four_batches(runs: Runs) -> None:
    """Batch 1 is what the summary quotes."""
    inference = runs["resident"].inference
    assert inference is not None
    assert [each.batch for each in inference.latencies] == [1, 8, 32, 128]
    assert inference.latencies[0].p50_s == inference.latency_p50_s
    assert all(0 < each.p50_s <= each.p99_s and each.n >= 1 for each in inference.latencies)


def test_profile_is_a_trace_outside_the_epochs(runs: Runs, folder: Path) -> None:
    """TensorBoard's file is there, its time has a place of its own, and training was not changed by it."""
    [trace] = (folder / "trace").glob("plugins/profile/*/*.xplane.pb")
    assert trace.stat().st_size > 1000
    assert runs["streamed"].timings.accounted.profile_s > 0
    assert runs["resident"].timings.accounted.profile_s == 0
