"""The search for the best batch, on devices whose law is known: what a step takes, what fits, how clocks scatter."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from trainer.errors import ConfigError, TrainingFailed
from trainer.record.section import BatchSearch, BatchTry
from trainer.timing.batch_search import BLOCKS, Bounds, StepTimer, bounds_of, choice_of, confirmed, search

Law = Callable[[int], float]
GIB = 2**30


@dataclass
class Device:
    """An engine, its model and its clock: a step of n samples takes `law(n)` s, and more than `limit` do not fit.

    eval_limit: more than so many do not fit beside their evaluation.
    """

    law: Law
    limit: int = 2**62
    eval_limit: int = 2**62
    kind: str = "gpu"
    compile_s: float = 20.0
    replicas: int = 1
    now_s: float = 0.0
    batch: int = 0
    placed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.device = SimpleNamespace(kind=self.kind, replicas=self.replicas)
        self.weights = np.arange(5.0)

    def rebatch(self, global_batch: int) -> None:
        self.batch = global_batch

    def place(self, _dataset: object) -> tuple[Any, Any]:
        self.placed.append(self.batch)
        training = SimpleNamespace(steps=100, warm_up_step=self._steps, makes_a_call_of=lambda *_: False)
        return training, SimpleNamespace(warm_up_step=lambda: self._evaluate)

    def memory_problem(self, error: Exception) -> str:
        return str(error) if isinstance(error, MemoryError) else ""

    def snapshot(self) -> list[Any]:
        return [self.weights.copy()]

    def restore(self, values: list[Any]) -> None:
        self.weights = values[0].copy()

    def _steps(self) -> Callable[..., object]:
        first = [True]

        def train(steps: int = 1) -> None:
            self.now_s += self.compile_s if first.pop() else 0.0
            self.weights[:3] += self.batch  # half an update, as where an allocation fails in its middle
            if self.batch > self.limit:
                raise MemoryError(f"OOM when allocating {self.batch} samples")
            self.weights += 1
            self.now_s += steps * self.law(self.batch)
            first.append(False)

        return train

    def _evaluate(self) -> None:
        if self.batch > self.eval_limit:
            raise MemoryError(f"OOM when evaluating {self.batch} samples")

    @property
    def timer(self) -> StepTimer:
        any_self: Any = self
        return StepTimer(any_self, any_self, any_self, 64 * GIB, lambda: self.now_s, lambda: GIB)

    def search(self, samples: int = 10**7) -> BatchSearch:
        return search(self.timer, bounds_of(samples, self.replicas))


def rate(law: Law, batch: int) -> float:
    return batch / law(batch)


def plateau(batch: int) -> float:
    """128 samples at a time take 1 ms: the device is full at 128."""
    return 0.001 * -(-batch // 128)


def linear(batch: int) -> float:
    """Dispatch takes as long as 64 samples."""
    return 0.000_1 * (64 + batch)


def cliff(batch: int) -> float:
    """The same, until a cache is full."""
    return linear(batch) * (1 if batch <= 512 else 2)


def steps_of_tiles(batch: int) -> float:
    """Tiles of 96 samples: a doubling may gain nothing and the next one much."""
    return 0.001 + 0.000_5 * -(-batch // 96)


@pytest.mark.parametrize(
    ("law", "limit", "chosen", "why"),
    [
        (plateau, 2**62, 128, "2 doublings gained less than 5% a sample each"),
        (linear, 2**62, 2048, "2 doublings gained less than 5% a sample each"),
        (linear, 300, 256, "512 does not fit"),
        (linear, 256, 256, "512 does not fit"),
        (linear, 5, 4, "8 does not fit"),
        (linear, 1, 1, "2 does not fit"),
        (cliff, 2**62, 512, "2 doublings gained less than 5% a sample each"),
        (lambda batch: 0.001 * batch, 2**62, 8, "2 doublings gained less than 5% a sample each"),
    ],
)
def test_the_optimum_of_a_known_law_is_found(law: Law, limit: int, chosen: int, why: str) -> None:
    """The smallest batch that is as fast a sample as any; the first that is too large ends the search."""
    found = Device(law, limit).search()
    assert (found.global_batch, found.ended) == (chosen, why)
    assert all(each.step_s == pytest.approx(law(each.global_batch)) for each in found.tries if each.step_s is not None)
    assert [each.problem for each in found.tries if each.step_s is None] == [
        f"OOM when allocating {each.global_batch} samples" for each in found.tries if each.global_batch > limit
    ]


@pytest.mark.parametrize(
    ("limit", "eval_limit", "chosen", "failed"),
    [
        (2**62, 2**62, 2048, ()),
        (2**62, 600, 512, (2048, 1024)),
        (700, 2**62, 512, (2048, 1024)),  # another process has taken the rest meanwhile
    ],
)
def test_what_was_found_is_tried_once_more_and_the_next_smaller_one_that_fits_is_taken(
    limit: int, eval_limit: int, chosen: int, failed: tuple[int, ...]
) -> None:
    device = Device(linear)
    found = device.search()
    device.limit, device.eval_limit = limit, eval_limit
    again = confirmed(found, device.timer.once_more)
    assert (again.global_batch, again.failed_again, again.tries) == (chosen, failed, found.tries)


def test_a_device_on_which_nothing_fits_any_more_ends_the_run() -> None:
    device = Device(linear)
    found = device.search()
    device.limit = 0
    with pytest.raises(TrainingFailed, match="nothing that fitted does so when it is tried once more: OOM"):
        confirmed(found, device.timer.once_more)


def test_other_processes_on_the_device_are_measured_first_and_named() -> None:
    choice = choice_of(Device(linear, limit=300).search(), ("python (4711)",), 40 * GIB)
    assert choice.search is not None
    assert (choice.search.others, choice.search.other_bytes) == (("python (4711)",), 40 * GIB)
    assert choice.note == (
        "auto: the fastest a sample; 512 does not fit; before it other processes held 40.0 GiB of the devices: "
        "python (4711)"
    )


@pytest.mark.parametrize("dispatch", [1, 10, 64, 500, 3000])
def test_under_a_linear_law_no_batch_is_faster_by_more_than_six_per_cent(dispatch: int) -> None:
    """As docs/measuring.md says: t = a + b n, whatever a is."""
    law = lambda batch: 1e-6 * (dispatch + batch)  # noqa: E731
    assert rate(law, Device(law).search().global_batch) > 0.94 * 1e6


@pytest.mark.parametrize("law", [plateau, linear, cliff, steps_of_tiles])
def test_clocks_that_scatter_lead_to_a_batch_that_is_hardly_slower(law: Law) -> None:
    """With 5 % scatter of each block, 190 of 200 searches end within 10 % of the best: a median of five is taken."""
    best = rate(law, Device(law).search().global_batch)
    scatter = random.Random(0)

    def measure(batch: int) -> BatchTry:
        blocks = (law(batch) * scatter.lognormvariate(0, 0.05) for _ in range(BLOCKS))
        return BatchTry(global_batch=batch, step_s=median(blocks))

    found = [search(measure, bounds_of(10**7, 1)).global_batch for _ in range(200)]
    assert sum(rate(law, batch) >= 0.9 * best for batch in found) >= 190


def test_weights_are_what_they_were_also_after_an_overflow_in_the_middle_of_an_update() -> None:
    """Bit by bit, after batches that fit and one that did not."""
    device = Device(linear, limit=100)
    assert device.search().tries[-1].step_s is None
    assert device.placed == [8, 16, 32, 64, 128]
    assert device.weights.tobytes() == np.arange(5.0).tobytes()


def test_other_errors_end_the_run_and_leave_the_weights() -> None:
    """Only a lack of memory is survived."""

    def broken(batch: int) -> float:
        raise ZeroDivisionError(batch)

    device = Device(broken)
    with pytest.raises(ZeroDivisionError):
        device.search()
    assert device.weights.tobytes() == np.arange(5.0).tobytes()


def test_a_model_that_fits_with_no_batch_is_an_error_that_says_so() -> None:
    """Down to one sample for each replica."""
    with pytest.raises(
        TrainingFailed, match="--batch_size auto: not even 4 samples fit: OOM when allocating 4 samples"
    ):
        Device(linear, limit=0, replicas=4).search()


@pytest.mark.parametrize(
    ("samples", "replicas", "bounds"),
    [
        (10**6, 1, Bounds(8, 100_000, 1)),
        (10**6, 8, Bounds(64, 100_000, 8)),
        (60_000, 8, Bounds(64, 6_000, 8)),
        (100, 1, Bounds(8, 10, 1)),
        (50, 1, Bounds(4, 5, 1)),
        (8, 8, Bounds(8, 8, 8)),
    ],
)
def test_the_data_set_bounds_the_batch(samples: int, replicas: int, bounds: Bounds) -> None:
    """An epoch keeps ten steps, so that less than a tenth of its samples is left out; replicas get the same each."""
    assert bounds_of(samples, replicas) == bounds
    if samples >= 10 * replicas:
        found = Device(lambda batch: 1.0 + 0 * batch, replicas=replicas).search(samples)
        assert samples % found.global_batch < found.global_batch <= samples // 10
        assert found.ended == f"{2 * found.global_batch} would leave fewer than 10 steps an epoch"
        assert all(each.global_batch % replicas == 0 for each in found.tries)


def test_fewer_samples_than_replicas_are_refused() -> None:
    """Nothing can be searched."""
    with pytest.raises(ConfigError, match=r"--batch_size auto: 7 training samples do not give each of the 8 replicas"):
        bounds_of(7, 8)


def test_on_a_cpu_a_batch_that_would_take_half_of_the_machine_is_not_tried() -> None:
    """Linux would kill the process. By the growth so far: 1 GiB and 16 MiB a sample, of 8 GiB."""
    device = Device(linear, kind="cpu")
    any_device: Any = device
    peak = lambda: GIB + device.batch * 2**24  # noqa: E731
    found = search(
        StepTimer(any_device, any_device, any_device, 8 * GIB, lambda: device.now_s, peak), Bounds(8, 10**6, 1)
    )
    assert (found.global_batch, found.tries[-1].global_batch) == (128, 256)
    assert found.tries[-1].problem == "this process would take 5.0 of the machine's 8.0 GiB"
    assert device.placed[-1] == 128
