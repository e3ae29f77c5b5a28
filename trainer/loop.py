"""How is a model trained and every second of it accounted for? Warm up, then epochs of timed blocks, then inference."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainer.config import Config
from trainer.data.order import epoch_order
from trainer.errors import TrainingFailed
from trainer.log import Instant, log, now
from trainer.percentiles import percentile
from trainer.program import Model, Program
from trainer.progress import ProgressReporter
from trainer.record import Epoch, Inference
from trainer.recorder import Block, Recorder

_LATENCY_CALLS = 200
_THROUGHPUT_CALLS = 20
_WARM_UP_CALLS = 3
_INFERENCE_BUDGET_S = 3.0  # for each of the two measurements; slow devices make fewer calls, and n says how many


def steps_per_call(config: Config, steps: int) -> int:
    """Return how many steps one compiled call trains: as asked, or a tenth of an epoch so that progress shows."""
    return min(config.steps_per_call or math.ceil(steps / 10), steps)


def compile_program(program: Program, model: Model, order: NDArray[np.int64], recorder: Recorder) -> None:
    """Compile training and evaluation and take their time; weights, optimizer and random state stay as they were."""
    before = model.snapshot()
    placed = program.start_epoch(order)
    recorder.compile_s = _extra_of_first_call(lambda: program.train_block(placed, 0, 1))
    recorder.eval_compile_s = _extra_of_first_call(lambda: program.evaluate(1))
    for variable, value in before:
        variable.assign(value)


def _extra_of_first_call(call: Callable[[], object]) -> float:
    durations_s = []
    for _ in range(2):
        start_s = time.perf_counter()
        call()
        durations_s.append(time.perf_counter() - start_s)
    return max(0.0, durations_s[0] - durations_s[1])


@dataclass(frozen=True)
class _Trained:
    """The training part of an epoch: between the two moments the device did `steps` steps, and nothing else."""

    number: int
    started: Instant
    ended: Instant
    input_wait_s: float
    steps: int
    samples: int
    loss: float

    @property
    def wall_s(self) -> float:
        """Seconds from start to end."""
        return self.ended.seconds_since(self.started)


def train_epochs(
    program: Program, config: Config, samples: int, recorder: Recorder, progress: ProgressReporter
) -> None:
    """Train and evaluate `config.train_epochs` epochs, recording each. Raises TrainingFailed when the loss diverges."""
    for number in range(1, config.train_epochs + 1):
        progress.phase("training", epoch=number, step=0)
        trained = _train_one(program, config, samples, number, recorder, progress)
        if not math.isfinite(trained.loss):
            problem = f"the training loss of epoch {number} is {trained.loss}"
            raise TrainingFailed(f"{problem}; --learning_rate {config.learning_rate:g} may be too high")
        progress.phase("evaluating", step=trained.steps, loss=trained.loss)
        epoch = _evaluate_one(program, trained)
        recorder.epochs.append(epoch)
        title = f"epoch {number}/{config.train_epochs}"
        results = f"test_accuracy {epoch.test_accuracy:.4f} test_loss {epoch.test_loss:.4f}"
        log(f"{title} evaluated {results} eval_s {epoch.eval_s:.4f}")
        log(f"{title} end loss {epoch.loss:.4f} {results} epoch_s {epoch.wall_s:.4f} eval_s {epoch.eval_s:.4f}")
        progress.phase("evaluating", accuracy=epoch.test_accuracy)
        recorder.write("running")


def _train_one(
    program: Program, config: Config, samples: int, number: int, recorder: Recorder, progress: ProgressReporter
) -> _Trained:
    """Train one epoch; its two log lines carry the very moments that are recorded."""
    title = f"epoch {number}/{config.train_epochs}"
    started = now()
    log(f"{title} start", started)
    order = epoch_order(samples, config.batch_size, config.seed, number)
    placed = program.start_epoch(order)
    input_wait_s = now().seconds_since(started)
    loss = _train_blocks(program, placed, len(order), number, recorder, progress)
    trained = _Trained(number, started, now(), input_wait_s, len(order), order.size, loss)
    log(f"{title} trained epoch_s {trained.wall_s:.4f}", trained.ended)
    return trained


def _train_blocks(
    program: Program, order: object, steps: int, epoch: int, recorder: Recorder, progress: ProgressReporter
) -> float:
    """Train one epoch in blocks and return its mean loss."""
    size = recorder.steps_per_call or steps
    loss = math.nan
    for first_step in range(0, steps, size):
        count = min(size, steps - first_step)
        start_s = time.perf_counter()
        loss = program.train_block(order, first_step, count)
        recorder.blocks.append(Block(epoch, first_step, count, time.perf_counter() - start_s))
        progress.step(first_step + count, loss)
    return loss


def _evaluate_one(program: Program, trained: _Trained) -> Epoch:
    """Evaluate after an epoch and return all that is known about it."""
    before = now()
    result = program.evaluate(program.eval_steps)
    eval_s = now().seconds_since(before)
    if not math.isfinite(result.loss):
        raise TrainingFailed(f"the test loss after epoch {trained.number} is {result.loss}; lower --learning_rate")
    return Epoch(
        index=trained.number,
        started_at=trained.started.at,
        ended_at=trained.ended.at,
        wall_s=trained.wall_s,
        input_wait_s=trained.input_wait_s,
        eval_s=eval_s,
        steps=trained.steps,
        samples=trained.samples,
        loss=trained.loss,
        test_loss=result.loss,
        test_accuracy=result.accuracy,
    )


def measure_inference(program: Program, images: NDArray[np.uint8], per_replica_batch: int) -> Inference:
    """Measure latency at one image and throughput at the training batch, each after warm-up, on uint8 test images."""
    one_s, _ = _timed_calls(program, images[:1], _LATENCY_CALLS)
    batch = images[np.arange(per_replica_batch) % len(images)]
    batch_s, results = _timed_calls(program, batch, _THROUGHPUT_CALLS)
    return Inference(
        latency_p50_s=percentile(one_s, 0.50),
        latency_p99_s=percentile(one_s, 0.99),
        latency_n=len(one_s),
        throughput_batch_size=results,
        throughput_samples_per_s=len(batch_s) * results / sum(batch_s),
        throughput_n=len(batch_s),
    )


def _timed_calls(program: Program, images: NDArray[np.uint8], calls: int) -> tuple[list[float], int]:
    """Return the seconds of each call after warm-up, at least one, and the results of a call."""
    for _ in range(_WARM_UP_CALLS):
        results = program.infer(images)
    durations_s: list[float] = []
    while len(durations_s) < calls and sum(durations_s) < _INFERENCE_BUDGET_S:
        start_s = time.perf_counter()
        program.infer(images)
        durations_s.append(time.perf_counter() - start_s)
    return durations_s, results
