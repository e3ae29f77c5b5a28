"""Live a seed again and print its events; shrink one that fails; or live many.

python -m tests.simulation.replay 4711                       # every event, and the rules that were broken
python -m tests.simulation.replay 4711 --shrink              # without the troubles that it also fails without
python -m tests.simulation.replay 0:10000 --processes 2      # the seeds that fail
"""

from __future__ import annotations

import argparse
import atexit
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from multiprocessing import Pool
from pathlib import Path

import click

from orchestrator.domain.accelerators import accelerator
from orchestrator.domain.runs import RunSpec
from tests.simulation.campaign import Campaign, Outcome
from tests.simulation.judge import Rule
from tests.simulation.schedule import Schedule, Trouble
from tests.trainer.data.test_prepare import write_idx
from trainer.data.prepare import prepare_dataset

PROGRESS = 1000
SAMPLE_BYTES = 10_056_000
"""Of the packaged sample's shards."""


@cache
def template() -> RunSpec:
    """A run on a small data set, prepared once for all campaigns; the plan is told the packaged sample's size."""
    folder = Path(tempfile.mkdtemp(prefix="simulation-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    prepared = prepare_dataset(write_idx(folder / "idx"), "mnist", folder / "prepared")
    return RunSpec(
        accelerator=accelerator("t4"),
        workload="mnist-cnn",
        epochs=3,
        batch_size=256,
        zones=(),
        dataset=prepared.manifest.fingerprint,
        dataset_bytes=SAMPLE_BYTES,
        dataset_objects=len(prepared.manifest.shards) + 1,
        dataset_dir=str(prepared.directory),
    )


@contextmanager
def _silence() -> Iterator[None]:
    """The product logs what it cannot handle; here that is a violation, and printed as one."""
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def live(schedule: Schedule) -> Outcome:
    """Live a schedule in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="campaign-") as home, _silence():
        return Campaign(schedule, Path(home), template()).live()


def rules(outcome: Outcome) -> set[Rule]:
    """The rules that did not hold."""
    return {violation.rule for violation in outcome.violations}


def shrink(schedule: Schedule, rule: Rule) -> Schedule:
    """Without what it breaks the rule without, too: launches from the end, then troubles, halves first, one by one."""

    def fails(candidate: Schedule) -> bool:
        return rule in rules(live(candidate))

    for launches in range(1, schedule.launches):
        fewer = Schedule(schedule.seed, launches, tuple(one for one in schedule.troubles if one.launch < launches))
        if fails(fewer):
            schedule = fewer
            break
    size = max(1, len(schedule.troubles) // 2)
    while True:
        kept = _without(schedule.troubles, size)
        smaller = next((one for one in map(schedule.with_troubles, kept) if fails(one)), None)
        if smaller is not None:
            schedule = smaller
        elif size == 1:
            return schedule
        else:
            size //= 2


def _without(troubles: tuple[Trouble, ...], size: int) -> Iterator[tuple[Trouble, ...]]:
    for start in range(0, len(troubles), size):
        yield troubles[:start] + troubles[start + size :]


def failing(seeds: Iterable[int], processes: int) -> Iterator[Outcome]:
    """The outcome of each seed, in order."""
    if processes == 1:
        yield from map(_outcome, seeds)
        return
    with Pool(processes) as pool:
        yield from pool.imap(_outcome, seeds, chunksize=50)


def _outcome(seed: int) -> Outcome:
    outcome = live(Schedule.of(seed))
    outcome.trace = []
    return outcome


def main(argv: list[str] | None = None) -> int:
    """1 if a rule was broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", help="one, or FIRST:END")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--processes", type=int, default=1)
    told = parser.parse_args(argv)
    first, _, end = told.seeds.partition(":")
    if end:
        return _many(range(int(first), int(end)), told.processes)
    schedule = Schedule.of(int(first))
    outcome = live(schedule)
    if told.shrink and outcome.violations:
        schedule = shrink(schedule, outcome.violations[0].rule)
        outcome = live(schedule)
    click.echo("\n".join(f"{at:%d %H:%M:%S} {what}" for at, what in outcome.trace))
    click.echo("\n  ".join(["troubles:", *map(str, schedule.troubles)]))
    click.echo("\n  ".join(["violations:", *map(str, outcome.violations)]))
    return bool(outcome.violations)


def _many(seeds: range, processes: int) -> int:
    began, failed, deaths = time.perf_counter(), 0, 0
    for number, outcome in enumerate(failing(seeds, processes), start=1):
        deaths += outcome.deaths
        failed += bool(outcome.violations)
        for violation in outcome.violations:
            click.echo(violation)
        if number % PROGRESS == 0:
            click.echo(f"up to seed {outcome.seed}: {failed} of {number} broke a rule", err=True)
    took_s = time.perf_counter() - began
    click.echo(f"{len(seeds)} campaigns in {took_s:.0f} s: {failed} broke a rule; {deaths} processes died")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
