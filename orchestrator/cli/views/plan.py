"""What would a launch do and cost? The plan as it is shown before anything is rented, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.cli import output
from orchestrator.domain.accelerators import Provisioning
from orchestrator.domain.host_address import is_host
from orchestrator.domain.money import ZERO, usd
from orchestrator.domain.plan import PARALLEL_RUNS

if TYPE_CHECKING:
    from decimal import Decimal

    from rich.table import Table

    from orchestrator.domain.cost import CostLine
    from orchestrator.domain.runs import Attempt, Run
    from orchestrator.planning.launch import Plan


def plan_json(plan: Plan) -> dict[str, Any]:
    """`--dry-run --json`. `expected_usd` and `expected_hours` null: not every run of it was measured before.

    `worst_case_usd` is with one VM for each run, `all_vms_usd` with those that follow VMs that were taken back, too.
    """
    from orchestrator.cli.views.estimate import lines_json

    whole = plan.all_expected
    return {
        "experiment": None,
        "worst_case_usd": plan.worst_case_usd,
        "all_vms_usd": plan.all_vms_usd,
        "held_usd": plan.held_usd,
        "run_by_run": plan.run_by_run,
        "expected_usd": whole and whole.usd,
        "expected_hours": whole and whole.hours,
        "credit_usd": plan.credit.amount_usd,
        "free_usd": plan.money.free_usd,
        "notes": list(plan.notes),
        "runs": [
            {
                "accelerator": run.spec.accelerator,
                "workload": run.spec.workload,
                "batch_size": run.spec.batch_size,
                "epochs": run.spec.epochs,
                "train_samples": run.spec.train_samples,
                "repeat": run.spec.repeat,
                "until_verdict": run.until_verdict,
                "checkpoint_every": run.spec.checkpoint_every,
                "zones": list(run.spec.zones),
                "usd_per_hour": attempt.rate.usd_per_hour,
                "price_as_of": attempt.rate.as_of,
                "price_kind": attempt.rate.kind,
                "worst_case_usd": attempt.reserved_usd,
                "expected_usd": expected and expected.usd,
                "items": lines_json(lines),
            }
            for run, attempt, lines, expected in zip(plan.runs, plan.attempts, plan.lines, plan.expected, strict=True)
        ],
    }


def show_plan(plan: Plan, *, items: bool) -> None:
    """The table of what is run, then in sentences the data, the notes, the order and the money."""
    output.print_table(_table(plan), on_stderr=True)
    if items:
        _show_items(plan)
    data = plan.data
    samples = f"{data.splits.train.samples} training and {data.splits.test.samples} test samples"
    used = sorted({run.spec.train_samples for run in plan.runs if run.spec.train_samples is not None})
    part = f" (trained on the first {' / '.join(map(str, used))})" if used else ""
    output.say(f"data: {data.name}, {samples}{part}; {data.source_note}")
    there = data.splits.train.samples
    sizes = sorted({(run.spec.train_samples or there, run.spec.batch_size) for run in plan.runs})
    cut = [f"{size - size % batch} of {size} at batch {batch}" for size, batch in sizes if size % batch]
    if cut:
        output.say(f"whole batches only: an epoch trains {', '.join(cut)}")
    for note in plan.notes:
        output.say(f"note: {note}")
    for sentence in _money(plan):
        output.say(sentence)


def _table(plan: Plan) -> Table:
    """A row for each combination, all its repeats together."""
    figures = ["batch", "samples", "epochs", "repeats", "USD/h", "worst case", "of the credit"]
    columns = ["accelerator", "workload", *figures[:4], "zone", "USD/h", "price", *figures[5:]]
    varied = {"samples": any(run.spec.train_samples for run in plan.runs), "repeats": plan.runs[-1].spec.repeat > 1}
    table = output.table("plan", [name for name in columns if varied.get(name, True)], figures)
    together: dict[tuple[object, ...], list[tuple[Run, Attempt]]] = {}
    for run, attempt in zip(plan.runs, plan.attempts, strict=True):
        key = (run.spec.accelerator, run.spec.batch_size, run.spec.train_samples)
        together.setdefault(key, []).append((run, attempt))
    for repeats in together.values():
        run, attempt = repeats[0]
        more = len(run.spec.zones) - 1
        worst = sum((one.reserved_usd for _, one in repeats), ZERO)
        cells = {
            "accelerator": run.spec.rented_as,
            "workload": run.spec.workload,
            "batch": str(run.spec.batch_size),
            "samples": str(run.spec.train_samples or "all"),
            "epochs": str(run.spec.epochs),
            "repeats": str(len(repeats)),
            "zone": attempt.zone + (f" (+{more})" if more else ""),
            "USD/h": f"{attempt.rate.usd_per_hour:.3f}",
            "price": attempt.rate.words,
            "worst case": usd(worst) + (" (not rented)" if is_host(attempt.zone) else ""),
            "of the credit": _share(worst, plan),
        }
        table.add_row(*(cell for name, cell in cells.items() if varied.get(name, True)))
    return table


def _too_short(plan: Plan) -> Iterator[str]:
    """Where the deadline is expected to end a training before it is done."""
    longest: dict[str, Decimal] = {}
    for run, expected in zip(plan.runs, plan.expected, strict=True):
        if expected is not None and expected.hours > run.spec.max_hours:
            longest[run.spec.accelerator] = max(expected.hours, longest.get(run.spec.accelerator, expected.hours))
    for name, hours in longest.items():
        limit = plan.runs[0].spec.max_hours
        yield f"too short: {name} is expected to take {hours:.2f} h, and --max-hours {limit:f} would end it before"


def _money(plan: Plan) -> Iterator[str]:
    """In which order, what is held when, what to expect, and what it costs at most."""
    count = len(plan.runs)
    if count > 1:
        repeats = "one repeat of everything before the next, " if plan.runs[-1].spec.repeat > 1 else ""
        yield f"order: {count} runs, {repeats}the cheapest first, at most {PARALLEL_RUNS} side by side"
    spared = [run for run in plan.runs if run.until_verdict]
    if spared:
        yield (
            f"early stop: {len(spared)} of them, from repeat {spared[0].spec.repeat} on, are not rented once the "
            "verdict of every pairing stands (--no-early-stop rents them all)"
        )
    whole = plan.all_expected
    if whole is not None:
        yield f"expected: {usd(whole.usd)} in about {whole.hours:.2f} h, from earlier {whole.basis}"
    elif count > 1:
        unknown = dict.fromkeys(
            run.spec.accelerator for run, one in zip(plan.runs, plan.expected, strict=True) if one is None
        )
        what = f"{plan.runs[0].spec.workload} on {', '.join(unknown)} with these data"
        yield f"expected: unknown, as no run of {what} was measured yet"
    yield from _too_short(plan)
    if plan.run_by_run:
        yield (
            f"held run by run: at most {usd(plan.held_usd)} at once; a run that does not fit when its turn comes waits "
            "for what the others give back, and is refused (exit code 3) if that is too little"
        )
    elif count > 1:
        yield "held: the worst case of all runs, before the first begins"
    places, hours = {is_host(attempt.zone) for attempt in plan.attempts}, plan.runs[0].spec.max_hours
    if False in places:
        together = "the worst cases together are" if plan.run_by_run else "at most"
        yield (
            f"{together} {usd(plan.worst_case_usd)} = {_share(plan.worst_case_usd, plan)} of the "
            f"{usd(plan.credit.amount_usd)} credit, of which {usd(plan.money.free_usd)} is free; "
            f"each VM is deleted by its kill switches after {hours} h"
        )
        yield from _taken_back(plan)
    if True in places:
        yield f"your own machines cost nothing here; what runs there is ended there after {hours} h at the latest"


def _taken_back(plan: Plan) -> Iterator[str]:
    """What it comes to where VMs are taken back, and whether there is money for those that follow."""
    spec, (limit_usd, limit) = plan.runs[0].spec, plan.limit
    if spec.max_attempts == 1:
        return
    least = "" if plan.all_vms_usd < limit_usd else f", which is all of {limit} that is free"
    yield (
        "that is with one VM for each run; one that is taken back is followed by another, up to "
        f"{spec.max_attempts} for each run, held anew: at most {usd(plan.all_vms_usd)} in all{least}"
    )
    dearest = max(attempt.reserved_usd for attempt in plan.attempts)
    if spec.provisioning is Provisioning.SPOT and limit_usd - plan.held_usd < dearest:
        yield (
            f"little room: what a VM that is taken back has cost may be missing of {limit} when the next one is to be "
            "held; then its run ends there (a smaller --max-hours leaves room)"
        )


def _share(amount: Decimal, plan: Plan) -> str:
    return f"{amount / plan.credit.amount_usd:.1%}" if plan.credit.amount_usd else "-"


def _show_items(plan: Plan) -> None:
    """What the worst case is made of, once for each accelerator and zone: the other runs there differ by cents."""
    from orchestrator.cli.views.estimate import lines_table

    kinds: dict[str, Sequence[CostLine]] = {}
    for run, attempt, lines in zip(plan.runs, plan.attempts, plan.lines, strict=True):
        if lines:  # what is not rented has none
            kinds.setdefault(f"{run.spec.accelerator} {attempt.zone}", lines)
    if kinds:
        output.print_table(lines_table("worst case of one run", list(kinds.items())), on_stderr=True)
