"""A table with a row for each worker of the runs on slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orchestrator.report.run_schema import WorkerTiming
from orchestrator.report.tables.sheet import Sheet, number, share
from orchestrator.report.workers import LEAST_SHARE

_CELLS: dict[str, Callable[[WorkerTiming], str]] = {
    "worker": lambda each: str(each.worker),
    "ended": lambda each: each.status,
    "late": lambda each: number(each.late_s),
    "imports": lambda each: number(each.imports_s),
    "set-up": lambda each: number(each.setup_s),
    "data": lambda each: number(each.data_load_s),
    "compile": lambda each: number(each.compile_s),
    "epoch": lambda each: number(each.epoch_s),
    "n": lambda each: str(each.epochs),
    "wait": lambda each: number(each.input_wait_s),
    "excess": lambda each: "-" if each.excess_s is None else f"{each.excess_s:+.3g}",
    "CPU": lambda each: share(each.cpu_taken_share),
    "straggler": lambda each: "yes" if each.is_straggler else "no" if each.excess_s is not None else "unknown",
}
_LEGEND = (
    "late: started after the first worker; imports, data: its own; set-up, compile: with waiting for the others",
    "epoch, wait: means of the n steady epochs, wait for its own input; excess: wait above the others' median; "
    f"straggler: excess of {LEAST_SHARE:.0%} of the epoch or more, its 95 % interval (of all workers) above 0",
    "CPU: share of its cores' time in which the trainer waited for a CPU. Every step ends for all workers at once, so "
    "slow devices or networks of one do not show here",
)


def worker_sheet(runs: Sequence[tuple[str, Sequence[WorkerTiming]]], mark: str) -> Sheet:
    """The workers of each named run, in seconds. `mark`: what a title says of simulated runs."""
    rows = tuple((name, *(cell(each) for cell in _CELLS.values())) for name, workers in runs for each in workers)
    figures = tuple(name for name in _CELLS if name not in ("ended", "straggler"))
    return Sheet(f"Workers, in seconds{mark}", ("run", *_CELLS), figures, rows, _LEGEND)
