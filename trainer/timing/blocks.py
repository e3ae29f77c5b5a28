"""Blocks, steps between two looks at the clock: how an epoch is cut into them, and what they say of a step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainer.config import Config
from trainer.record.schema import Epoch, Steps
from trainer.timing.time_accounting import percentile

BLOCK_AT_LEAST_S = 0.25
"""Where steps are short: a block costs the host a millisecond, and the end of each scatters."""
_AIMED_AT_S = 1.0  # a step in a block may be far shorter than one that was timed before
_BLOCK_AT_MOST_S = 2.5  # so that a signal is answered, also with a second block under way, and progress seen
_BLOCKS = 10  # of an epoch, where steps are slow enough


@dataclass(frozen=True)
class Block:
    """Steps between two moments at which the host waited for the device. `wall_s` is without `input_wait_s`."""

    epoch: int
    first_step: int
    steps: int
    wall_s: float
    input_wait_s: float = 0.0


def steps_per_block(config: Config, steps: int, step_s: float) -> int:
    """Return how many of an epoch's steps make a block: as asked, or by how long a step takes."""
    size = config.steps_per_call or _by_time(steps, max(step_s, 1e-9))
    every = config.checkpoint_every
    if every is not None and every.unit == "steps":
        size = min(size, every.count)
    return min(size, steps)


def cut(steps: int, size: int) -> Iterator[int]:
    """Yield the sizes of the blocks of so many steps: equal ones, and what is left."""
    whole, rest = divmod(steps, size)
    yield from [size] * whole
    if rest:
        yield rest


def step_times(block_steps: int | None, epochs: Sequence[Epoch], blocks: Sequence[Block]) -> Steps | None:
    """Sum up the full blocks of the steady epochs; of all, when there is no steady one."""
    numbers = {epoch.index for epoch in epochs if epoch.steady}
    steady = [block for block in blocks if block.epoch in numbers]
    step_s = [block.wall_s / block.steps for block in steady or blocks if block.steps == block_steps]
    if block_steps is None or not step_s:
        return None
    return Steps(
        block_steps=block_steps,
        n=len(step_s),
        epochs_used="steady" if steady else "all of this part: none of them is steady",
        p50_s=percentile(step_s, 0.50),
        p90_s=percentile(step_s, 0.90),
        p99_s=percentile(step_s, 0.99),
    )


def _by_time(steps: int, step_s: float) -> int:
    blocks = max(1, min(_BLOCKS, int(steps * step_s / _AIMED_AT_S)))
    size = min(math.ceil(steps / blocks), max(1, int(_BLOCK_AT_MOST_S / step_s)))
    return math.ceil(steps / math.ceil(steps / size))  # equal ones
