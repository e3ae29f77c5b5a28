"""What is said of two accelerators: figures, how sure they are, and the same in a sentence."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

from pydantic import BaseModel, ConfigDict

from orchestrator.domain.money import usd
from orchestrator.domain.statistics import MOST_REPEATS, Interval

SIMULATED = "simulated: speeds mean nothing"
Verdict = Literal["faster", "inconclusive", "observation", "void"]


class Pairing(BaseModel):
    """Two accelerators that trained the same: `ratio` = slower / faster, of the geometric means of their steady epochs.

    `interval` holds the ratio with 95 % confidence, `epoch_usd_interval` that of what an epoch costs on them, slower /
    faster as well: below 1 the faster one is dearer. `verdict`: "faster" when the ratio is not 1, false in 5 % of
    reports at most; "inconclusive" when it may be 1; "observation" for lack of repeats; "void" when fairness calls the
    pairing so, whatever the interval. `more_repeats` on each side would probably decide an inconclusive one, at
    `more_usd` for all of them; None where it is not known. `global_batch`, `train_samples`: None when not the same.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    workload: str
    global_batch: int | None
    train_samples: int | None
    faster: str
    slower: str
    faster_s: float
    slower_s: float
    faster_runs: int
    slower_runs: int
    ratio: float
    interval: Interval | None
    faster_epoch_usd: Decimal | None
    slower_epoch_usd: Decimal | None
    epoch_usd_ratio: float | None
    epoch_usd_interval: Interval | None
    verdict: Verdict
    more_repeats: int | None
    more_usd: Decimal | None
    sentence: str


def sentence(pair: Pairing, *, cost_is_sure: bool, among: int) -> str:
    """The verdict in words that claim no more than was measured. `among`: how many comparisons the report has."""
    if pair.verdict in ("observation", "void"):
        return _observation(pair)
    if pair.verdict == "inconclusive":
        return _inconclusive(pair, among) + _cost(pair, "; ", cost_is_sure)
    times = f"{_short(pair.faster_s)} against {_short(pair.slower_s)} an epoch"
    outcome = f"{pair.faster} is {_times(pair.ratio)} faster than {pair.slower} {_within(pair.interval)} ({times})"
    return f"{outcome}{_cost(pair, ' and ', cost_is_sure)}; {_counts(pair)}"


def epoch_usd(amount: Decimal) -> str:
    """An epoch may cost a thousandth of a cent: two digits of it at least."""
    return usd(amount) if amount == 0 or amount >= Decimal("0.001") else f"${amount:.{max(6, 1 - amount.adjusted())}f}"


def _observation(pair: Pairing) -> str:
    outcome = f"{pair.faster} was {pair.ratio:.2f} times as fast"
    if f"{pair.ratio:.2f}" == "1.00":
        outcome = "the same to two digits"
    if pair.faster_epoch_usd is not None and pair.slower_epoch_usd is not None:
        outcome += f", at {epoch_usd(pair.faster_epoch_usd)} an epoch against {epoch_usd(pair.slower_epoch_usd)}"
    said = f"steady epoch {pair.faster} {_short(pair.faster_s)}, {pair.slower} {_short(pair.slower_s)}: {outcome}"
    if pair.interval is not None:
        return f"{said} {_within(pair.interval)}; {_counts(pair)}"
    alike = ", all alike" if min(pair.faster_runs, pair.slower_runs) > 1 else ""
    return f"{said}; {_counts(pair)}{alike}: no interval, so this is an observation, not a verdict"


def _inconclusive(pair: Pairing, among: int) -> str:
    reason = f"the interval of their ratio {_within(pair.interval)} holds 1"
    if pair.interval is not None and pair.interval[0] > 1:
        reason = f"the interval of their ratio {_within(pair.interval)} may hold 1, as one of {among} comparisons"
    times = f"{pair.faster} {_short(pair.faster_s)}, {pair.slower} {_short(pair.slower_s)} an epoch ({_counts(pair)})"
    return f"inconclusive: {times}, {reason}; {_what_would_decide(pair)}"


def _what_would_decide(pair: Pairing) -> str:
    if pair.more_repeats is None:
        return f"not even {MOST_REPEATS} more repeats of each would probably decide"
    cost = f" (about {usd(pair.more_usd)})" if pair.more_usd is not None else ""
    plural = "" if pair.more_repeats == 1 else "s"
    return f"{pair.more_repeats} more repeat{plural} of each{cost} would probably decide"


def _cost(pair: Pairing, joined: str, sure: bool) -> str:
    """Cheaper or dearer per epoch, just as plainly as faster."""
    if pair.faster_epoch_usd is None or pair.slower_epoch_usd is None:
        return ""
    amounts = f"{epoch_usd(pair.faster_epoch_usd)} against {epoch_usd(pair.slower_epoch_usd)}"
    if pair.epoch_usd_ratio is None or pair.epoch_usd_interval is None:
        return f"{joined}costs {amounts} per epoch"
    low, high = pair.epoch_usd_interval
    if pair.epoch_usd_ratio >= 1:
        times, how, interval = _times(pair.epoch_usd_ratio), "cheaper", (low, high)
    else:
        times, how, interval = _times(1 / pair.epoch_usd_ratio), "dearer", (1 / high, 1 / low)
    if not sure:
        return f"{joined}not shown to be cheaper or dearer per epoch: {times} {how} {_within(interval)} ({amounts})"
    who = f"{pair.faster} is " if joined == "; " else ""
    joined = joined.replace("and", "but") if how == "dearer" else joined
    return f"{joined}{who}{times} {how} per epoch {_within(interval)} ({amounts})"


def _counts(pair: Pairing) -> str:
    if pair.faster_runs == pair.slower_runs:
        return "one run each" if pair.faster_runs == 1 else f"{pair.faster_runs} runs each"
    return f"{pair.faster_runs} and {pair.slower_runs} runs"


def _within(interval: Interval | None) -> str:
    return f"[{_number(interval[0])}, {_number(interval[1])}]" if interval else ""


def _times(ratio: float) -> str:
    return f"{_number(ratio)}x"


def _number(ratio: float) -> str:
    """Three digits that count; as many more as it takes to tell it from 1."""
    digits = 0 if ratio >= 99.95 else 1 if ratio >= 9.995 else 2
    while digits < 6 and ratio != 1 and float(f"{ratio:.{digits}f}") == 1:
        digits += 1
    return f"{ratio:.{digits}f}"


def _short(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"
