"""The training loop, with every second accounted for: epochs of timed blocks."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from numpy.typing import NDArray

from trainer import signals
from trainer.config import Config
from trainer.engines.base import Model, Testing, TrainBlocks, Training
from trainer.engines.checkpoint import Checkpoints, Position
from trainer.errors import Interrupted, TrainingFailed
from trainer.log import log, now
from trainer.record.progress import Autosave, ProgressReporter
from trainer.record.schema import Epoch
from trainer.timing.blocks import cut
from trainer.timing.recorder import Block, Recorder
from trainer.timing.time_accounting import cpu_steal_s, cpu_wait_s

_LAST_CHECKPOINT_AT_MOST_S = 10.0  # of the 20 s that the VM's runner waits after SIGTERM


@dataclass
class EpochLoop:
    """Trains and evaluates epoch after epoch, recording each; `position` is where a resumed run would continue."""

    training: Training
    testing: Testing
    model: Model
    config: Config
    recorder: Recorder
    progress: ProgressReporter
    autosave: Autosave
    checkpoints: Checkpoints
    position: Position

    def run(self) -> None:
        """Train what is left of `config.train_epochs` epochs.

        Raises TrainingFailed when the loss diverges, OutputFailed when a checkpoint cannot be written. When a signal
        ends it and checkpoints are on, one is written first, if that does not last too long.
        """
        self.recorder.training_starts()
        try:
            while self.position.epoch <= self.config.train_epochs:
                self._one_epoch()
        except Interrupted:
            if self.config.checkpoint_every is not None:
                self._last_checkpoint()
            raise

    def _one_epoch(self) -> None:
        number, title = self.position.epoch, f"epoch {self.position.epoch}/{self.config.train_epochs}"
        with self._bookkeeping():
            self.progress.phase("training", epoch=number, step=self.position.step)
        described = self.train_epoch(number, title)
        with self._bookkeeping():
            self.progress.phase("evaluating", step=self.training.steps, loss=self._mean_loss())
        epoch = self._evaluate(number, described)
        self.recorder.epochs.append(epoch)
        self.position = Position(number + 1)
        if self._is_due_after(number):
            checkpoint_s = epoch.checkpoint_s + self._checkpoint()
            self.recorder.epochs[-1] = epoch = epoch.model_copy(update={"checkpoint_s": checkpoint_s})
        with self._bookkeeping():
            results = _results(epoch)
            log(f"{title} evaluated {results} eval_s {epoch.eval_s:.4f}")
            log(f"{title} end loss {epoch.loss:.4f} {results} epoch_s {epoch.wall_s:.4f} eval_s {epoch.eval_s:.4f}")
            self.progress.phase("evaluating", accuracy=epoch.test_accuracy)
            self.autosave.wake()

    def _bookkeeping(self) -> AbstractContextManager[None]:
        return self.recorder.accounts.spend("bookkeeping")

    def train_epoch(self, number: int, title: str) -> Callable[..., Epoch]:
        """Train one epoch and return its description, which lacks the evaluation.

        Its two log lines carry the very moments that are recorded.
        """
        start = self.position
        with self._bookkeeping():
            read_before = self.training.bytes_read()
            waited_before_s, stolen_before_s = cpu_wait_s(), cpu_steal_s()
        cpu_before_s = time.process_time()
        started = now()
        log(f"{title} start", started)
        with ExitStack() as stack:
            train = stack.enter_context(self.training.epoch(number, start.step, start.loss_total))
            opening_s = now().seconds_since(started)
            blocks_wait_s, checkpoint_s = self._blocks(train, number)
            ended = now()
            cpu_s = time.process_time() - cpu_before_s
        teardown_s = now().seconds_since(ended)
        with self._bookkeeping():
            waited_s, stolen_s = cpu_wait_s(), cpu_steal_s()
        self.recorder.accounts.add("input_wait", opening_s)
        self.recorder.accounts.add("teardown", teardown_s)
        first_of_part = all(epoch.part != self.recorder.part for epoch in self.recorder.epochs)
        wall_s, steps = ended.seconds_since(started) - checkpoint_s, self.training.steps - start.step
        described = partial(
            Epoch,
            index=number,
            part=self.recorder.part,
            start_step=start.step,
            steady=not (first_of_part or start.step or checkpoint_s),
            started_at=started.at,
            ended_at=ended.at,
            wall_s=wall_s,
            input_wait_s=opening_s + blocks_wait_s,
            teardown_s=teardown_s,
            idle_cpu_s=max(0.0, wall_s + checkpoint_s - cpu_s / self.recorder.cores),
            cpu_wait_s=_difference(waited_s, waited_before_s),
            cpu_steal_s=_difference(stolen_s, stolen_before_s),
            checkpoint_s=checkpoint_s,
            bytes_read=self.training.bytes_read() - read_before,
            steps=steps,
            samples=steps * self.config.global_batch,
            loss=self._mean_loss(),
        )
        with self._bookkeeping():
            log(f"{title} trained epoch_s {wall_s:.4f}", ended)
        return described

    def _mean_loss(self) -> float:
        return self.position.loss_total / self.training.steps

    def _blocks(self, train: TrainBlocks, number: int) -> tuple[float, float]:
        """Train the rest of an epoch in blocks; return the seconds of input wait and of checkpoints in between.

        Between the blocks up to a checkpoint the next one may be under way: signals are answered behind them.
        """
        recorder, steps = self.recorder, self.training.steps
        size = recorder.steps_per_call or steps
        waited_s = checkpoint_s = 0.0
        while (done := self.position.step) < steps:
            for result in train(done, cut(min(steps - done, self._steps_to_checkpoint(number, done)), size)):
                recorder.accounts.add_steps(result.steps, result.wall_s)
                recorder.accounts.add("input_wait", result.input_wait_s)
                if result.steps:
                    recorder.blocks.append(Block(number, done, result.steps, result.wall_s, result.input_wait_s))
                waited_s += result.input_wait_s
                done += result.steps
                self.position = Position(number, done, result.loss_total)
                loss = result.loss_total / max(done, 1)
                if not signals.requested():
                    self._refuse_divergence(loss, f"the training loss of epoch {number}")
                    self.progress.step(done, loss)
            signals.stop_if_requested()
            if done < steps and self._steps_to_checkpoint(number, done, now_due=True) == 0:
                checkpoint_s += self._checkpoint()
        return waited_s, checkpoint_s

    def _steps_to_checkpoint(self, number: int, done: int, now_due: bool = False) -> int:
        """Return the steps until a checkpoint is due within the epoch; `now_due`: 0 when it is due at this step."""
        every = self.config.checkpoint_every
        if every is None or every.unit == "epochs":
            return self.training.steps
        over = ((number - 1) * self.training.steps + done) % every.count
        return over if now_due else every.count - over

    def _is_due_after(self, number: int) -> bool:
        every = self.config.checkpoint_every
        if every is None:
            return False
        done = number if every.unit == "epochs" else number * self.training.steps
        return done % every.count == 0 or number == self.config.train_epochs

    def _checkpoint(self) -> float:
        """Write a checkpoint of this moment; return the seconds it took."""
        start_s = time.perf_counter()
        self._write_checkpoint(self.model.snapshot())
        signals.stop_if_requested()
        return time.perf_counter() - start_s

    def _last_checkpoint(self) -> None:
        """Write a checkpoint where a signal came, in the few seconds before its sender kills the process.

        A bucket that does not answer must not cost the record: the checkpoint before stays the valid one then.
        """
        values, problems = self.model.snapshot(), ["it took too long"]

        def write() -> None:
            try:
                self._write_checkpoint(values)
                problems.clear()
            except Exception as error:  # the top of a thread
                problems[:] = [str(error)]

        writer = threading.Thread(target=write, name="last checkpoint", daemon=True)
        writer.start()
        writer.join(_LAST_CHECKPOINT_AT_MOST_S)
        for problem in problems:
            log(f"the last checkpoint is not written: {problem}; the one before it, if any, is still there")

    def _write_checkpoint(self, values: list[NDArray[Any]]) -> None:
        recorder, position = self.recorder, self.position
        with recorder.accounts.spend("checkpoint"):
            parts = (*recorder.parts, recorder.current_part(kept=True))
            self.checkpoints.write(position, values, parts, tuple(recorder.epochs))
        log(f"checkpoint epoch {position.epoch} step {position.step}")

    def _evaluate(self, number: int, described: Callable[..., Epoch]) -> Epoch:
        """Evaluate after an epoch and return all that is known about it."""
        start_s = time.perf_counter()
        result = self.testing.evaluate()
        signals.stop_if_requested()
        eval_s = time.perf_counter() - start_s
        self.recorder.accounts.add("evaluation", eval_s)
        self._refuse_divergence(result.loss, f"the test loss after epoch {number}")
        with self._bookkeeping():
            return described(
                eval_s=eval_s, test_loss=result.loss, test_accuracy=result.accuracy, test_metrics=result.metrics
            )

    def _refuse_divergence(self, loss: float, what: str) -> None:
        if not math.isfinite(loss):
            problem = f"{what} is {loss}"
            raise TrainingFailed(f"{problem}; --learning_rate {self.config.learning_rate:g} may be too high")


def _results(epoch: Epoch) -> str:
    """Return what was evaluated as a line of the log says it."""
    accuracy = () if epoch.test_accuracy is None else (("test_accuracy", epoch.test_accuracy),)
    named = ((f"test_{metric.name}", metric.value) for metric in epoch.test_metrics if metric.value is not None)
    return " ".join(f"{name} {value:.4f}" for name, value in (*accuracy, ("test_loss", epoch.test_loss), *named))


def _difference(after: float | None, before: float | None) -> float | None:
    # The sum over threads falls when one ends.
    return None if after is None or before is None else max(0.0, after - before)
