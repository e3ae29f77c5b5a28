"""Training on streamed samples: one call per batch, while a thread prepares the next ones.

Input wait is time in which the device had nothing to do: before the host waits for a batch that is not ready, it waits
for the device to finish what it has, and only what comes after that is input wait. So neither is counted as the other,
although devices work asynchronously.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import tensorflow as tf

from trainer import signals
from trainer.data.source import BatchLike, BatchPlan, BatchSource
from trainer.data.stream import Batch
from trainer.engines.base import BlockResult, Evaluation, TrainBlock
from trainer.engines.tensorflow.flops import flops_per_sample
from trainer.engines.tensorflow.program import Program
from trainer.errors import DataError

_READY_BATCHES = 2
_POLL_S = 0.2
_END = object()


class _Feed:
    """A thread that takes batches from a source and places them on the devices ahead of the steps that need them."""

    def __init__(self, batches: Iterable[BatchLike], place: Callable[[BatchLike], Any]) -> None:
        self._ready: queue.Queue[Any] = queue.Queue(_READY_BATCHES)
        self._closing = threading.Event()
        self._batches, self._place = batches, place
        self._thread = threading.Thread(target=self._fill, name="feed", daemon=True)
        self._thread.start()

    def take(self, before_waiting: Callable[[], object]) -> tuple[Any, float]:
        """Return the next batch, and the seconds waited; None instead of it at the end, or when a signal waits.

        Raises what the source raised.
        """
        waited_s = 0.0
        if signals.requested():
            return None, waited_s
        try:
            item = self._ready.get_nowait()
        except queue.Empty:
            before_waiting()
            start_s = time.perf_counter()
            item = self._wait()
            waited_s = time.perf_counter() - start_s
        if isinstance(item, BaseException):
            raise item
        return (None if item is _END else item), waited_s

    def close(self) -> None:
        """End the thread, once the source has let go of it."""
        self._closing.set()
        with suppress(queue.Empty):
            while True:
                self._ready.get_nowait()
        self._thread.join()

    def _wait(self) -> Any:
        while not signals.requested():
            with suppress(queue.Empty):
                return self._ready.get(timeout=_POLL_S)
        return _END

    def _fill(self) -> None:
        try:
            for batch in self._batches:
                if not self._put(self._place(batch)):
                    return
            self._put(_END)
        except BaseException as error:  # the top of a thread: the one that takes the batches raises it
            self._put(error)

    def _put(self, item: Any) -> bool:
        while not self._closing.is_set():
            with suppress(queue.Full):
                self._ready.put(item, timeout=_POLL_S)
                return True
        return False


class StreamedTraining:
    """Trains on batches as they come, one call per step."""

    def __init__(self, program: Program, source: BatchSource) -> None:
        self._program, self._devices, self._model = program, program.devices, program.model
        self._source, self._batch = source, program.batch
        self.steps = source.count // program.spec.global_batch
        # Those that are ready, the one in use and the one being placed.
        self.data_bytes_on_device = (_READY_BATCHES + 2) * self._batch * (math.prod(program.spec.image_shape) + 4)
        with self._devices.strategy.scope():
            self._total = self._devices.per_replica_sum(())
        self._train = program.compiled(self._train_graph)
        self._read = tf.function(self._read_graph)

    def warm_up_step(self) -> Callable[[], object]:
        """Return one step on a black batch."""
        placed = self._place(self._black())

        def step() -> float:
            self._train(*placed)
            return self._loss_total()

        return step

    @contextmanager
    def epoch(self, number: int, first_step: int, loss_total: float) -> Iterator[TrainBlock]:
        """Open the source and start reading ahead; at the end both are waited for."""
        self._total.assign(loss_total)
        spec = self._program.spec
        plan = BatchPlan(spec.global_batch, spec.seed, number, first_step, worker=self._program.role)
        with self._source.batches(plan) as batches:
            feed = _Feed(batches, self._place)
            try:
                yield lambda first, count: self._block(feed, first, count)
            finally:
                feed.close()

    def flops_per_sample(self) -> tuple[int | None, str]:
        """Count in the function of one step."""
        traced = self._train.get_concrete_function(*self._place(self._black()))
        return flops_per_sample(traced, self._batch * self._devices.copies_in_graph, step_loop=False)

    def bytes_read(self) -> int:
        """Return what the source has read so far."""
        return self._source.bytes_read

    def _black(self) -> Batch:
        return _black(self._batch * len(self._devices.local_devices), self._program.spec.image_shape)

    def _place(self, batch: BatchLike) -> tuple[Any, ...]:
        return self._devices.place_batch(self._batch, batch.images, batch.labels)

    def _block(self, feed: _Feed, first: int, count: int) -> BlockResult:
        start_s = time.perf_counter()
        waited_s, done = 0.0, 0
        while done < count:
            placed, step_waited_s = feed.take(self._last_step)
            waited_s += step_waited_s
            if placed is None:
                break
            self._train(*placed)
            done += 1
        loss_total = self._loss_total()
        if done < count and not signals.requested():
            problem = f"ended after {first + done} of {self.steps} batches of an epoch"
            raise DataError("the training data", problem, "check that the data set is whole")
        return BlockResult(done, loss_total, time.perf_counter() - start_s - waited_s, waited_s)

    def _loss_total(self) -> float:
        """Wait for the device and return the sum of the losses since the epoch's start."""
        return float(self._read().numpy()[0])

    def _last_step(self) -> float:
        """Wait for this process's device alone: of several workers only one may be short of input."""
        return float(self._model.last_weights().numpy())

    def _train_graph(self, images: Any, labels: Any) -> None:
        self._devices.strategy.run(self._train_step, args=(images, labels))

    def _train_step(self, images: Any, labels: Any) -> None:
        self._total.assign_add(self._model.train_on(images, labels))

    def _read_graph(self) -> Any:
        return tf.stack([self._total.read_value(), self._model.last_weights()])


class StreamedTesting:
    """Evaluates batches as they come; the last one is filled up with samples that weigh nothing."""

    def __init__(self, program: Program, source: BatchSource) -> None:
        self._devices, self._model, self._role = program.devices, program.model, program.role
        self._source, self._image_shape = source, program.spec.image_shape
        self._batch = program.eval_batch(source.count)
        self._local_batch = self._batch * len(self._devices.local_devices)
        self.data_bytes_on_device = (_READY_BATCHES + 2) * self._batch * (math.prod(self._image_shape) + 8)
        with self._devices.strategy.scope():
            self._totals = self._devices.per_replica_sum((2,))
        self._score = program.compiled(self._score_graph)

    def warm_up_step(self) -> Callable[[], object]:
        """Return the evaluation of one black batch."""
        placed = self._place(_black(self._local_batch, self._image_shape))

        def step() -> Any:
            self._score(*placed)
            return self._totals.read_value().numpy()

        return step

    def evaluate(self) -> Evaluation:
        """Evaluate every sample of the source, unless a signal waits."""
        self._totals.assign(tf.zeros((2,)))
        plan = BatchPlan(self._batch * self._devices.replicas, shuffle=False, drop_remainder=False, worker=self._role)
        with self._source.batches(plan) as batches:
            feed = _Feed(batches, self._place)
            try:
                while (placed := feed.take(lambda: None)[0]) is not None:
                    self._score(*placed)
            finally:
                feed.close()
        loss, correct = self._totals.read_value().numpy()
        return Evaluation(float(loss) / self._source.count, float(correct) / self._source.count)

    def bytes_read(self) -> int:
        """Return what the source has read so far."""
        return self._source.bytes_read

    def _place(self, batch: BatchLike) -> tuple[Any, ...]:
        missing = self._local_batch - len(batch.labels)
        images = np.concatenate([batch.images, np.zeros((missing, *self._image_shape), np.uint8)])
        labels = np.concatenate([batch.labels, np.zeros(missing, np.int32)])
        weights = (np.arange(self._local_batch) < len(batch.labels)).astype(np.float32)
        return self._devices.place_batch(self._batch, images, labels, weights)

    def _score_graph(self, images: Any, labels: Any, weights: Any) -> None:
        self._devices.strategy.run(self._score_step, args=(images, labels, weights))

    def _score_step(self, images: Any, labels: Any, weights: Any) -> None:
        self._totals.assign_add(self._model.score(images, labels, weights))


def _black(count: int, image_shape: tuple[int, ...]) -> Batch:
    """Return images of class 0, to compile with."""
    return Batch(np.zeros((count, *image_shape), np.uint8), np.zeros(count, np.int32))
