"""View of an extrapolation: a plain table and sentences for people, one object for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli import output
from orchestrator.cli.views.text import plain_table
from orchestrator.domain.bottlenecks import UPLOAD_BYTES_PER_S, size_text
from orchestrator.domain.money import usd
from orchestrator.domain.scaling import CONFIDENCE
from orchestrator.planning.request import MAX_HOURS_LIMIT
from orchestrator.report.schema import SIMULATED

if TYPE_CHECKING:
    from orchestrator.bootstrap import Project
    from orchestrator.domain.published import Claim
    from orchestrator.money.guard import MoneyView
    from orchestrator.planning.extrapolate import Answer, Extrapolation
    from orchestrator.planning.options import LaunchOptions


def extrapolate_and_show(
    project: Project,
    sweep: Sequence[str],
    options: LaunchOptions,
    *,
    workload: str | None,
    images: int | None,
    test_images: int | None,
    as_json: bool,
) -> None:
    """Answer `estimate --images N --from ..`. Raises click's UsageError for one without the other."""
    if not sweep:
        raise click.UsageError("--images and --test-images need --from: a measured sweep to extrapolate from")
    if not images:
        raise click.UsageError("--from needs --images: how many training samples to extrapolate to")
    from orchestrator.bootstrap import SystemClock
    from orchestrator.money.guard import credit_or_refuse, money_view
    from orchestrator.planning.extrapolate import ExtrapolationRequest, extrapolate
    from orchestrator.report.sources import sources_named

    now, ledger = SystemClock().now(), project.ledger
    money = money_view(ledger, credit_or_refuse(ledger, now=now), now)
    sources = sources_named(sweep, ledger)
    request = ExtrapolationRequest(
        images, test_images, options.epochs, workload, options.accel, options.provisioning, options.zone
    )
    found = extrapolate(request, sources, ledger, project.prices(now), money)
    if as_json:
        output.print_json(extrapolation_json(found, money))
        return
    for line in text(found, money):
        output.print_text(line)


def extrapolation_json(found: Extrapolation, money: MoneyView) -> dict[str, Any]:
    """Seconds, bytes, USD; intervals are [low, high]; shares are of 1."""
    return {
        "workload": found.workload,
        "images": found.job.images,
        "test_images": found.job.test_images,
        "epochs": found.job.epochs,
        "confidence": CONFIDENCE,
        "simulated": found.simulated,
        "credit_usd": money.credit_usd,
        "free_usd": money.free_usd,
        "answers": [_answer_json(answer) for answer in found.answers],
        "refused": [
            {"accelerator": each.accelerator, "reason": each.reason, "next": each.hint} for each in found.refused
        ],
        "published_claim": found.claim
        and {"claimed": found.claim.claimed, "quotient_h": found.claim.quotient, "faults": list(found.claim.faults)},
        "notes": list(found.notes),
    }


def _answer_json(answer: Answer) -> dict[str, Any]:
    line = answer.line
    shown = {
        **vars(answer),
        "epoch_fixed_s": line.fixed_s,
        "sample_s": line.sample_s,
        "sample_interval_s": line.sample_interval_s,
        "noise": line.noise,
        "unseen_bend": line.unseen_bend,
        "binds": answer.binds,
        "slowest": answer.slowest,
        "peak_s": answer.roofline.peak_s,
        "bandwidth_s": answer.roofline.bandwidth_s,
        "step_s": answer.roofline.step_s,
        "utilisation": answer.roofline.utilisation,
        "lever": answer.lever or None,
        "lacks": answer.lacks or None,
        "bounds": [vars(each) for each in answer.bounds],
        "places": [{**vars(each), "fits": each.fits} for each in answer.places],
        "cost": answer.cost and vars(answer.cost),
    }
    del shown["line"], shown["roofline"]
    return shown


def text(found: Extrapolation, money: MoneyView) -> Iterator[str]:
    """The lines that people read."""
    job = found.job
    mark = f" ({SIMULATED})" if found.simulated else ""
    yield (
        f"one run of {found.workload} on {job.images:,} training and {job.test_images:,} test samples, "
        f"{job.epochs} epochs{mark}"
    )
    yield from plain_table([_HEADS, *map(_cells, found.answers)], left=(0, len(_HEADS) - 1))
    for answer in found.answers:
        yield from _sentences(answer, money)
    for each in found.refused:
        yield f"{each.accelerator}: refused: {each.reason}"
        yield f"  next: {each.hint}"
    for note in found.notes:
        yield f"note: {note}"
    if found.claim:
        yield from _claim(found.claim, found.answers)
    yield (
        f"interval: {CONFIDENCE:.0%}, for the time of one run, if the line continues as measured; nothing beyond "
        "the largest size was measured"
    )
    stored = max((answer.places[-1].needed_bytes for answer in found.answers), default=0.0)
    yield (
        f"not included: uploading {size_text(stored)}; assumed to be in the bucket already; on a line of 1 Gbit/s "
        f"uploading takes {_duration(stored / UPLOAD_BYTES_PER_S)}"
    )
    if found.simulated:
        yield "simulated: measured on the local cloud, whose devices are CPUs; speeds, times and costs mean nothing"


_HEADS = ("accelerator", "runs", "hours", "interval", "USD", "interval", "of credit", "limited by")


def _cells(answer: Answer) -> tuple[str, ...]:
    cost = answer.cost
    more = " or more" if answer.at_least else ""
    money = ("unknown", "-", "-")
    if cost:
        share = "-" if cost.of_credit is None else f"{cost.of_credit:,.{0 if cost.of_credit > 1 else 1}%}"
        money = (_dollars(cost.usd), " to ".join(map(_dollars, cost.interval_usd)) + more, share)
    return (
        answer.accelerator,
        str(answer.runs),
        _hours(answer.seconds),
        " to ".join(_hours(each) for each in answer.interval_s) + more,
        *money,
        answer.binds,
    )


def _sentences(answer: Answer, money: MoneyView) -> Iterator[str]:
    line = answer.line
    low_high = " to ".join(f"{each * 1e6:.3g}" for each in line.sample_interval_s)
    yield (
        f"{answer.accelerator}: from {answer.runs} runs of {len(answer.sizes)} sizes up to {line.largest:,} samples, "
        f"to {_times(answer.factor)} as many: {line.sample_s * 1e6:.3g} µs a sample ({low_high}); runs differ by "
        f"{line.noise:.1%}, and the data cannot rule out a deviation of up to {line.unseen_bend:.1%} at the largest"
    )
    yield from (f"  {bound.name}: {_duration(bound.seconds)}: {bound.basis}" for bound in answer.bounds)
    yield from _limits(answer)
    yield from (f"  or more: {reason}" for reason in answer.at_least)
    yield from _money(answer, money)


def _limits(answer: Answer) -> Iterator[str]:
    """What the device and the memories allow, and which of the limits binds."""
    limits = answer.roofline
    if limits.peak_s is not None:
        yield (
            f"  at the device's peak FLOP/s the training alone would take {_duration(limits.peak_s)}: "
            f"utilisation {_share(limits.utilisation or 0.0)}"
        )
    elif limits.floor_s:
        yield (
            f"  at the peak FLOP/s of the device's fastest precision the training alone would take "
            f"{_duration(limits.floor_s)}; of the runs' precision it is not known, so neither is the utilisation"
        )
    if limits.bandwidth_s is not None:
        yield (
            f"  at its memory's bandwidth {_duration(limits.bandwidth_s)}, for each step's weights, gradients and "
            "optimizer state, whatever the batch; less where caches hold them"
        )
    too_small = [f"{each.name} ({size_text(each.there_bytes or 0.0)})" for each in answer.places if not each.fits]
    if too_small:
        needed = size_text(answer.places[-1].needed_bytes)
        yield f"  memory: {needed} of samples; too small: {', '.join(too_small)}"
    memory = f"memory: it cannot run as it is: {answer.lacks}; if it could, {answer.slowest} would be the limit"
    yield f"  limited by: {memory if answer.lacks else answer.slowest}"
    if answer.lever:
        yield f"  what would help: {answer.lever}"


def _money(answer: Answer, money: MoneyView) -> Iterator[str]:
    cost = answer.cost
    if cost is None:
        unknown = f"unknown: the catalog has no price of {answer.accelerator}"
        yield f"  cost: {unknown if answer.is_rented else '$0.00 (not rented)'}"
        return
    stored = size_text(answer.places[-1].needed_bytes)
    more = " (if it takes no longer than this)" if answer.at_least else ""
    fit = f"fits{more} into" if cost.fits else "does NOT fit into"
    at_most = "at most " if cost.usd_is_upper_bound else ""
    yield (
        f"  cost: {at_most}{_dollars(cost.usd)} at {usd(cost.usd_per_hour)}/h in {cost.zone}, of which "
        f"{_dollars(cost.storage_usd)} for keeping {stored} in the bucket; {fit} your credit: "
        f"{usd(money.free_usd)} of {usd(money.credit_usd)} is free"
    )
    if answer.interval_s[1] > float(MAX_HOURS_LIMIT) * 3600:
        yield f"  longer than the {MAX_HOURS_LIMIT} h for which a VM is rented here: several runs with checkpoints"


def _claim(claim: Claim, answers: Sequence[Answer]) -> Iterator[str]:
    yield f'published, by hand, for {claim.images:,} images and {claim.epochs} epochs: "{claim.claimed}". Wrong:'
    for number, fault in enumerate(claim.faults, start=1):
        yield f"  {number}. {fault}"
    ours = "; ".join(f"{each.accelerator} {_duration(each.seconds)}" for each in answers)
    yield f"  here, for what was asked above: {ours}"


def _share(part: float) -> str:
    return f"{part:.0%}" if part >= 0.1 else f"{part * 100:.1g} %"


def _dollars(amount: Decimal) -> str:
    return f"${amount:,.0f}" if amount >= 1000 else usd(amount)


def _times(factor: float) -> str:
    return f"{factor:,.0f} times" if factor >= 10 else f"{factor:.2g} times"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{_hours(seconds)} h"


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"
