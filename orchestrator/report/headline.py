"""A pairing at a glance: which two, how many times as fast, and how sure that is; time and cost, a line each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from orchestrator.domain.money import usd
from orchestrator.report.end_to_end import Ratio
from orchestrator.report.verdict import Pairing, Verdict, what_would_decide
from orchestrator.report.wording import bounded, counts, epoch_usd, ratio_text, seconds_text


@dataclass(frozen=True)
class Headline:
    """`pair` and `settings` say of what it is, the latter only where pairings of the report differ in it.

    `ratio`: of steady epochs, with its 95 % `interval` ("": none). `time`, `cost`: of both; `cost` is "" where no price
    is known. `more`: what would decide an inconclusive one, else "". `sentence`: the answer from end to end, or the
    verdict on steady epochs. `warning`: that its models learned nothing, else "".
    """

    pair: str
    settings: str
    ratio: str
    interval: str
    verdict: Verdict
    time: str
    cost: str
    more: str
    sentence: str
    warning: str

    @property
    def text(self) -> str:
        """Without time and cost."""
        interval = f", 95 % interval {self.interval}" if self.interval else ""
        said = f"{self.pair}{self.settings}: steady epochs {self.ratio}{interval}: {self.verdict}"
        return "; ".join(filter(None, (said, self.warning)))


def headlines(pairings: Sequence[Pairing]) -> tuple[Headline, ...]:
    """One for each pairing, in their order."""
    said = {
        name: len({getattr(pair, name) for pair in pairings}) > 1
        for name in ("workload", "global_batch", "train_samples")
    }
    return tuple(_headline(pair, said["workload"], said["global_batch"], said["train_samples"]) for pair in pairings)


def _headline(pair: Pairing, workload: bool, batch: bool, samples: bool) -> Headline:
    settings = (
        f", {pair.workload}" if workload else "",
        f", batch {pair.global_batch}" if batch and pair.global_batch else "",
        f", {pair.train_samples:,} samples" if samples and pair.train_samples else "",
        *(f", {words}" for words in pair.variant),
    )
    return Headline(
        pair=f"{pair.faster} against {pair.slower}",
        settings="".join(settings),
        ratio=f"{ratio_text(pair.ratio)} times as fast",
        interval=_interval(pair),
        verdict=pair.verdict,
        time=f"{seconds_text(pair.faster_s)} against {seconds_text(pair.slower_s)} per steady epoch",
        cost=_all_in(pair) or _epoch(pair),
        more=what_would_decide(pair) if pair.verdict == "inconclusive" else "",
        sentence=pair.sentences[0],
        warning=pair.chance,
    )


def _interval(pair: Pairing) -> str:
    """And the adjusted one where that alone leaves the verdict open."""
    if pair.interval is None:
        return ""
    text = " to ".join(map(ratio_text, pair.interval))
    if pair.verdict != "inconclusive" or pair.adjusted_interval is None or pair.interval[0] <= 1:
        return text
    return f"{text} (allowing for all comparisons {' to '.join(map(ratio_text, pair.adjusted_interval))})"


def _all_in(pair: Pairing) -> str:
    """Of a run, everything included: what one pays."""
    found: Ratio = pair.end_to_end.ratio("all-in cost")
    if found.ratio is None or found.faster_value is None or found.slower_value is None:
        return ""
    faster, slower = (usd(Decimal(repr(value))) for value in (found.faster_value, found.slower_value))
    interval = (
        f"no interval: {counts(pair.runs)}"
        if found.interval is None
        else f"95 % interval {' to '.join(map(ratio_text, found.interval))}"
    )
    ratio = bounded(ratio_text(found.ratio), pair.end_to_end)
    return f"{faster} against {slower} for a run, all in: {ratio} times, {interval}"


def _epoch(pair: Pairing) -> str:
    if pair.faster_epoch_usd is None or pair.slower_epoch_usd is None:
        return ""
    return f"{epoch_usd(pair.faster_epoch_usd)} against {epoch_usd(pair.slower_epoch_usd)} per steady epoch"
