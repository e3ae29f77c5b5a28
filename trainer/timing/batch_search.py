"""The search for the best batch of the devices: of those that fit, the smallest that is as fast a sample as any.

Batches are doubled, each is timed on the model that will be trained, and what that did to the model is undone. The one
that was found is tried once more, evaluation included: other processes may have taken memory meanwhile.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

from trainer import signals
from trainer.data.source import Dataset, count_of
from trainer.engines.base import Engine, Model, Training
from trainer.errors import ConfigError, TrainingFailed
from trainer.log import log
from trainer.record.machine import host_peak_bytes
from trainer.record.section import BatchSearch, BatchTry
from trainer.timing.facts import BatchChoice

FIRST_OF_A_REPLICA = 8
"""Samples: a TPU pads a smaller share of the batch to eight (cloud.google.com/tpu/docs/performance-guide)."""
STEPS_AT_LEAST = 10
"""Of an epoch, so that it leaves out less than a tenth of the samples: only whole batches are trained."""
GAIN, DOUBLINGS_WITHOUT = 0.05, 2
WITHIN = 0.03
BLOCKS = 5
_BLOCK_S = 0.1  # long enough that reading the clock and waiting for the device weigh little
_HOST_SHARE = 0.5

Measure = Callable[[int], BatchTry]
"""Times the steps of a global batch, or says that it does not fit."""


@dataclass(frozen=True)
class Bounds:
    """The first global batch of a search, and the most that the number of samples allows."""

    first: int
    most: int
    replicas: int


def bounds_of(samples: int, replicas: int) -> Bounds:
    """Return what a search over so many training samples may try. Raises ConfigError when no batch is possible."""
    if samples < replicas:
        problem = f"{samples} training samples do not give each of the {replicas} replicas one; use more samples"
        raise ConfigError("--batch_size", "auto", problem)
    each_at_most = max(1, samples // STEPS_AT_LEAST // replicas)
    each = 2 ** min(int(math.log2(FIRST_OF_A_REPLICA)), int(math.log2(each_at_most)))
    return Bounds(each * replicas, each_at_most * replicas, replicas)


def search(measure: Measure, bounds: Bounds) -> BatchSearch:
    """Double the batch until it does not fit, gains nothing or leaves too few steps; choose by the rule.

    The rule is in docs/measuring.md. Raises TrainingFailed when not even one sample a replica fits.
    """
    tries: list[BatchTry] = []
    batch, ended = bounds.first, ""
    while not ended:
        signals.stop_if_requested()
        tries.append(measure(batch))
        batch, ended = _next(tries, batch, bounds)
    fitting = [each for each in tries if each.step_s is not None]
    if not fitting:
        raise TrainingFailed(f"--batch_size auto: not even {tries[-1].global_batch} samples fit: {tries[-1].problem}")
    fastest = max(map(_rate, fitting))
    chosen = min(each.global_batch for each in fitting if _rate(each) >= (1 - WITHIN) * fastest)
    return BatchSearch(global_batch=chosen, tries=tuple(sorted(tries, key=lambda each: each.global_batch)), ended=ended)


def confirmed(found: BatchSearch, measure: Measure) -> BatchSearch:
    """Try what was found once more and return it, or the next smaller one that still fits.

    Raises TrainingFailed when none does.
    """
    failed, problem = list[int](), ""
    sizes = (each.global_batch for each in reversed(found.tries) if each.step_s is not None)
    for batch in (size for size in sizes if size <= found.global_batch):
        signals.stop_if_requested()
        again = measure(batch)
        if again.step_s is not None:
            return found.model_copy(update={"global_batch": batch, "failed_again": tuple(failed)})
        failed.append(batch)
        problem = again.problem
    raise TrainingFailed(f"--batch_size auto: nothing that fitted does so when it is tried once more: {problem}")


def _next(tries: list[BatchTry], batch: int, bounds: Bounds) -> tuple[int, str]:
    """Return the batch to try next, or why none is."""
    if tries[-1].step_s is None:
        if any(each.step_s is not None for each in tries):
            return batch, f"{batch} does not fit"
        if batch == bounds.replicas:
            return batch, "nothing fits"
        return batch // bounds.replicas // 2 * bounds.replicas, ""  # the first did not fit: the other way
    if len(tries) > 1 and tries[-2].step_s is None:
        return batch, f"{tries[-2].global_batch} does not fit"
    rates = [_rate(each) for each in tries]
    gains = [after / max(rates[: place + 1]) - 1 for place, after in enumerate(rates[1:])]
    if len(gains) >= DOUBLINGS_WITHOUT and all(gain < GAIN for gain in gains[-DOUBLINGS_WITHOUT:]):
        return batch, f"{DOUBLINGS_WITHOUT} doublings gained less than {GAIN:.0%} a sample each"
    if 2 * batch > bounds.most:
        return batch, f"{2 * batch} would leave fewer than {STEPS_AT_LEAST} steps an epoch"
    return 2 * batch, ""


def _rate(one: BatchTry) -> float:
    return one.global_batch / one.step_s if one.step_s else 0.0


@dataclass
class StepTimer:
    """Times steps of any batch on the real model and data. Weights, optimizer and random state stay as they were.

    `host_peak`: bytes that this process has taken at most; on a CPU they are the device's, of `ram_bytes`. There Linux
    would kill the process instead of refusing memory, so a batch counts as too large when by the growth so far the
    process would take more than half.
    """

    engine: Engine
    model: Model
    dataset: Dataset
    ram_bytes: int
    clock: Callable[[], float] = time.perf_counter
    host_peak: Callable[[], int] = host_peak_bytes

    def __post_init__(self) -> None:
        self._before = self.model.snapshot()
        self._start_bytes, self._each_bytes = self.host_peak(), 0.0

    def __call__(self, batch: int) -> BatchTry:
        """Compile and time steps of a global batch."""
        return self._try(batch, self._step_s)

    def once_more(self, batch: int) -> BatchTry:
        """Do the same, and evaluate, as the run will."""
        return self._try(batch, self._step_and_evaluate_s)

    def _try(self, batch: int, timed_s: Callable[[int], float]) -> BatchTry:
        problem = self._too_much(batch)
        if not problem:
            try:
                step_s = timed_s(batch)
                log(f"batch {batch} step_s {step_s:.6f} samples_per_s {batch / step_s:.1f}")
                return BatchTry(global_batch=batch, step_s=step_s)
            except Exception as error:
                problem = self.engine.memory_problem(error)
                if not problem:
                    raise
            finally:
                gc.collect()  # functions and samples of this batch leave the devices before the next one's come
                self.model.restore(self._before)
        log(f"batch {batch} does not fit: {problem}")
        return BatchTry(global_batch=batch, step_s=None, problem=problem)

    def _step_and_evaluate_s(self, batch: int) -> float:
        self.engine.rebatch(batch)
        training, testing = self.engine.place(self.dataset)
        step_s = self._median_s(training)
        testing.warm_up_step()()
        return step_s

    def _step_s(self, batch: int) -> float:
        self.engine.rebatch(batch)
        training, _ = self.engine.place(self.dataset)
        step_s = self._median_s(training)
        self._each_bytes = (self.host_peak() - self._start_bytes) / batch
        return step_s

    def _median_s(self, training: Training) -> float:
        """Return the median seconds a step of several blocks, each ended by waiting for the device."""
        train = training.warm_up_step()
        train()  # compiles
        one_s = self._seconds(train)
        steps = min(math.ceil(_BLOCK_S / max(one_s, 1e-9)), training.steps)
        if training.makes_a_call_of(steps, one_s):
            train(steps)  # compiles
        return median(self._seconds(partial(train, steps)) / steps for _ in range(BLOCKS))

    def _seconds(self, call: Callable[[], object]) -> float:
        start_s = self.clock()
        call()
        return self.clock() - start_s

    def _too_much(self, batch: int) -> str:
        if self.engine.device.kind in ("tpu", "gpu"):
            return ""
        needed = self._start_bytes + self._each_bytes * batch
        if needed <= _HOST_SHARE * self.ram_bytes:
            return ""
        return f"this process would take {needed / 2**30:.1f} of the machine's {self.ram_bytes / 2**30:.1f} GiB"


def find_batch(
    engine: Engine, model: Model, dataset: Dataset, ram_bytes: int, others: tuple[tuple[str, ...], int]
) -> BatchChoice:
    """Return the best batch for these devices, this model and this data, and what was tried.

    `others`: processes that hold memory of the devices already, and how many bytes they hold.

    Raises ConfigError when there is less than a sample for each replica, TrainingFailed when nothing fits.
    """
    bounds = bounds_of(count_of(dataset.train), engine.device.replicas)
    names, other_bytes = others
    if names:
        log(f"batch search: other processes hold {_gib(other_bytes)} of the devices: {', '.join(names)}")
    timer = StepTimer(engine, model, dataset, ram_bytes)
    return choice_of(confirmed(search(timer, bounds), timer.once_more), names, other_bytes)


def choice_of(found: BatchSearch, others: tuple[str, ...], other_bytes: int) -> BatchChoice:
    """Return what was found beside these other processes, which held so many bytes of the devices, as a choice."""
    note = f"auto: the fastest a sample; {found.ended}"
    if others:
        note += f"; before it other processes held {_gib(other_bytes)} of the devices: {', '.join(others)}"
    if found.failed_again:
        note += f"; {', '.join(map(str, found.failed_again))} did not fit when tried once more"
    search_ = found.model_copy(update={"others": others, "other_bytes": other_bytes})
    return BatchChoice(found.global_batch, note, search_)


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"
