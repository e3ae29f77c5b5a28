"""Figures as the sentences of a report write them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from decimal import Decimal
from math import floor, log10

from orchestrator.domain.money import usd
from orchestrator.domain.statistics import MOST_SAMPLES, Interval
from orchestrator.report.end_to_end import Crossover, EndToEnd, Ratio


def epoch_usd(amount: Decimal) -> str:
    """An epoch may cost a thousandth of a cent: two digits of it at least."""
    return usd(amount) if amount == 0 or amount >= Decimal("0.001") else f"${amount:.{max(6, 1 - amount.adjusted())}f}"


def ratio_text(ratio: float) -> str:
    """Three significant digits; as many more as it takes to tell it from 1."""
    digits = min(6, max(0, 2 - floor(log10(ratio))))
    while digits < 6 and ratio != 1 and float(f"{ratio:.{digits}f}") == 1:
        digits += 1
    return f"{ratio:.{digits}f}"


def ends(interval: Interval) -> str:
    """Of an interval of ratios."""
    return f"[{ratio_text(interval[0])}, {ratio_text(interval[1])}]"


def seconds_text(seconds: float) -> str:
    """Three significant digits at least."""
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"


def samples_text(samples: float) -> str:
    """Two significant digits: a place where lines cross is not known better."""
    for unit, name in ((1e9, " billion"), (1e6, " million"), (1.0, "")):
        if samples >= unit:
            digits = 1 - floor(log10(samples))
            return f"{round(samples, digits) / unit:,.{1 if name and samples < 10 * unit else 0}f}{name}"
    return "1"


def counts(runs: tuple[int, int]) -> str:
    """How many runs two sides have."""
    if runs[0] == runs[1]:
        return "one run each" if runs[0] == 1 else f"{runs[0]} runs each"
    return f"{runs[0]} and {runs[1]} runs"


def answer(
    whole: EndToEnd, names: tuple[str, str], runs: tuple[int, int], among: int, doubtful: Collection[str] = ()
) -> str:
    """What a reader asks, in one sentence; empty where nothing of it was measured.

    `names` and `runs`: of the faster accelerator and the slower one; `among`: how many comparisons the report has.
    `doubtful`: "cost" or "time" whose ratio of steady epochs may be 1, so that nothing is said to pay above a number.
    """
    pays = [each for each in whole.break_even if each.of not in doubtful][:1]
    target, paid = [*_to_target(whole, names, runs, among)], [*_all_in(whole, names, among), *map(_pays, pays)]
    parts = [*paid, *target] if whole.ratio("time to target").ratio is None else [*target, *paid]  # answers first
    return "; ".join((*parts, _in_brackets(whole, pays, runs))) if parts else ""


def _in_brackets(whole: EndToEnd, pays: Sequence[Crossover], runs: tuple[int, int]) -> str:
    """What stands in brackets in a sentence with these ratios and break-evens, or that nothing does."""
    if any(each.interval for each in whole.ratios):
        return "brackets: 95 % intervals"
    if any(_is_bracketed(each) for each in pays):
        return "brackets: 95 % interval" + "; no intervals for these ratios" * any(each.ratio for each in whole.ratios)
    return f"{counts(runs)}, no intervals"


def settled_cost(names: tuple[str, str], cost: Interval, of: str) -> str:
    """Of an undecided speed and a decided cost: `v3-8 was not shown to be faster than t4, and a run on it cost ..`.

    `names`: of the faster accelerator and the slower one; `cost`: the interval of its cost over that of the slower one,
    without 1; `of`: what costs that.
    """
    low, high = cost if cost[0] > 1 else (1 / cost[1], 1 / cost[0])
    more, less = names if cost[0] > 1 else names[::-1]
    times = f"{ratio_text(low)} to {ratio_text(high)} times as much"
    return f"{more} was not shown to be faster than {less}, and {of} on it cost {times}"


def target_text(accuracy: float) -> str:
    """As per cent, without needless zeros: 76 %, 99.25 %."""
    return f"{accuracy * 100:.4g} %"


def _to_target(whole: EndToEnd, names: tuple[str, str], runs: tuple[int, int], among: int) -> Iterator[str]:
    time, cost = whole.ratio("time to target"), whole.ratio("cost to target")
    if whole.target is None:
        return
    target = target_text(whole.target)
    reached = (whole.faster_reached, whole.slower_reached)
    if reached != runs:
        each = (f"{got} of {of} runs on {name}" for got, of, name in zip(reached, runs, names, strict=True))
        yield f"{' and '.join(each)} reached {target} accuracy: no ratio"
    elif time.ratio is None:
        yield f"not every run took more than its first epoch to {target} accuracy: no ratio, a higher target has one"
    else:
        late = "a target stated after the runs" if whole.target_is_late else ""
        caveats = ", ".join(filter(None, (late, whole.target_caveat)))
        caveat = f" ({caveats})" if caveats else ""
        times = "of" if time.ratio < 1 else "times"
        text = f"{names[0]} trains to {target}{caveat} in {_share(time, among)} {times} the time of {names[1]}"
        yield text + (f" at {_cost_share(whole, cost, among)} times the cost" if cost.ratio is not None else "")


def _all_in(whole: EndToEnd, names: tuple[str, str], among: int) -> Iterator[str]:
    cost = whole.ratio("all-in cost")
    if cost.ratio is not None:
        yield f"all in, a run on {names[0]} costs {_cost_share(whole, cost, among)} times one on {names[1]}"


def _pays(crossover: Crossover) -> str:
    """From how many samples on; an end that the runs do not show is open."""
    what = "costs less" if crossover.of == "cost" else "is done sooner, boot to teardown,"
    text, measured = f"{crossover.less_above} {what}", f"from runs of {samples_text(crossover.measured_samples)}"
    if crossover.samples is None:
        most = samples_text(MOST_SAMPLES)
        return f"{text} however long you train: 95 % intervals exclude the same at 1 and {most} samples, {measured}"
    text += f" above about {samples_text(crossover.samples)} training samples"
    if not _is_bracketed(crossover):
        return f"{text}, {measured}, no interval"
    low = "0" if crossover.low is None else samples_text(crossover.low)
    high = "any number" if crossover.high is None else samples_text(crossover.high)
    return f"{text} [{low} to {high}], {measured}"


def _is_bracketed(crossover: Crossover) -> bool:
    return crossover.samples is not None and (crossover.low, crossover.high) != (None, None)


def bounded(text: str, whole: EndToEnd) -> str:
    """What is said of a cost on the faster accelerator over one on the slower, where a price is an upper bound."""
    if whole.faster_usd_is_bound and whole.slower_usd_is_bound:
        return f"(both upper bounds) {text}"
    return f"at most {text}" if whole.faster_usd_is_bound else f"at least {text}" if whole.slower_usd_is_bound else text


def _cost_share(whole: EndToEnd, ratio: Ratio, among: int) -> str:
    return bounded(_share(ratio, among), whole)


def _share(ratio: Ratio, among: int) -> str:
    """The ratio with its interval and, where it may be 1, that it may."""
    assert ratio.ratio is not None
    text = ratio_text(ratio.ratio)
    if ratio.interval is None:
        return text
    low, high = (ratio_text(end) for end in ratio.interval)
    if ratio.interval[0] <= 1 <= ratio.interval[1]:
        return f"{text} [{low}, {high}; includes 1]"
    if ratio.verdict == "inconclusive":
        adjusted = f" adjusted {ends(ratio.adjusted_interval)}" if ratio.adjusted_interval else ""
        return f"{text} [{low}, {high}; not significant among {among} comparisons:{adjusted}]"
    return f"{text} [{low}, {high}]"
