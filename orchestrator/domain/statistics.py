"""What do repeated timings prove? Intervals of ratios, verdicts that are seldom false, and what a run's epochs tell."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import fmean, geometric_mean, median

Interval = tuple[float, float]
Sides = tuple[Sequence[float], Sequence[float]]
"""One figure a run, more than 0 (seconds or USD of a steady epoch), of one accelerator's runs and of another's."""

FALSE_VERDICTS = 0.05
"""How often a report, or a sweep, may call a difference where there is none: once in twenty times."""
POWER = 0.8
"""With which chance the repeats that are asked for bring a verdict, if effect and spread are what they seem."""
MOST_REPEATS = 100
LEAST_EPOCHS = 4
"""Of fewer epochs no rule says which one is odd."""

_BAND = 3.0  # robust standard deviations: the limits of a control chart
_OUTLIER = 3.5  # robust standard deviations
_NORMAL_MAD = 1.4826  # standard deviation of a normal law over its median absolute deviation
_LEAST_SPREAD = 0.01  # of the median: less is not called drift or outlier, however calm the other epochs are
_LEAST_SHIFT = 0.02
_NEVER_MISSED = 37.0  # standard errors, from which on SciPy's noncentral t has no digits left
_MOST_APART = math.log(1e9)  # no accelerator is a billion times as fast; the ends of wilder intervals have no digits
_LEAST_VARIANCE = 1e-18  # of logs: repeats that agree to a billionth are copies or made, and tell of no scatter


def ratio_interval(left: Sequence[float], right: Sequence[float], error: float = FALSE_VERDICTS) -> Interval | None:
    """The interval that holds the true ratio left / right, of geometric means, but for a share `error` of the cases.

    t intervals of the difference of the means of the logs: timings scatter by factors, and the unit of replication is
    the run. Sides of equal size: degrees of freedom by Welch (Biometrika 34, 1947). Unequal: the critical value by
    Cochran and Cox (Experimental Designs, 1950), since Welch's calls too much when the small side scatters more (with 2
    and 5 runs it held 90 % instead of 95 %). None with fewer than two runs on a side, or when neither scatters at all:
    then nothing tells how far another run might lie.
    """
    found = _difference(left, right)
    return None if found is None else _around(found.mean, found.critical(error) * found.error)


def differs(left: Sequence[float], right: Sequence[float], error: float = FALSE_VERDICTS) -> bool:
    """Whether the interval at `error` excludes the ratio 1. False without an interval."""
    interval = ratio_interval(left, right, error)
    return interval is not None and not interval[0] <= 1.0 <= interval[1]


def decided(family: Sequence[Sequence[Sides]], error: float = FALSE_VERDICTS) -> list[list[bool]]:
    """Which ratios of a report differ from 1, with a chance of at most `error` for even one false claim among all.

    A report that is asked for several times, to stop when it has a verdict, gets its share of the error each time:
    divided by the number of looks (Bonferroni: it needs no assumption on how looks depend on each other).

    `family`: for each comparison its tests, of time and of money. Holm's method (Scand. J. Statist. 6, 1979) as
    sharpened by Shaffer (JASA 81, 1986): the price of an hour being known, accelerators of different price cannot be
    equal in time *and* in money, so that each comparison with something undecided counts once.
    """
    found = [[False] * len(tests) for tests in family]
    while True:
        undecided = [
            (number, place)
            for number, tests in enumerate(family)
            for place, (left, right) in enumerate(tests)
            if not found[number][place] and ratio_interval(left, right) is not None
        ]
        level = error / max(1, len({number for number, _ in undecided}))
        new = [(number, place) for number, place in undecided if differs(*family[number][place], level)]
        if not new:
            return found
        for number, place in new:
            found[number][place] = True


def more_repeats(left: Sequence[float], right: Sequence[float], error: float = FALSE_VERDICTS) -> int | None:
    """How many more runs on each side would show the difference, with a chance of `POWER`, at this `error`.

    From the noncentral t distribution, taking the ratio and the scatter seen so far for the true ones: about right, no
    promise. None without an interval, or when `MOST_REPEATS` would not do.
    """
    from scipy.special import nctdtr

    seen = _difference(left, right)
    if seen is None:
        return None

    def enough(more: int) -> bool:
        then = replace(seen, sizes=(seen.sizes[0] + more, seen.sizes[1] + more))
        shift = abs(then.mean) / then.error
        if shift > _NEVER_MISSED:
            return True
        return bool(nctdtr(then.freedom, shift, then.critical(error)) <= 1 - POWER)

    more = 1 + bisect_left(range(1, MOST_REPEATS + 1), True, key=enough)
    return more if more <= MOST_REPEATS else None


def centre(figures: Sequence[float]) -> float:
    """The geometric mean: what `ratio_interval` is an interval of."""
    return figures[0] if len(set(figures)) == 1 else geometric_mean(figures)


def centre_interval(figures: Sequence[float], error: float = FALSE_VERDICTS) -> Interval | None:
    """The interval that holds one accelerator's true geometric mean but for a share `error` of the cases.

    A t interval of the logs. None with fewer than two runs, and when they do not scatter. Two such intervals may
    overlap while `ratio_interval` excludes 1: a difference is judged by that one.
    """
    from scipy.special import stdtrit

    if len(figures) < 2:
        return None
    middle, spread = moments([math.log(figure) for figure in figures])
    if spread <= _LEAST_VARIANCE:
        return None
    return _around(middle, float(stdtrit(len(figures) - 1, 1 - error / 2)) * math.sqrt(spread / len(figures)))


def leading_drift(epochs_s: Sequence[float]) -> int:
    """How many leading epochs still drift: those before the first that lies in the control limits of the later half.

    Robinson's rule (European Journal of Operational Research 176, 2007) with median and median absolute deviation for
    mean and standard deviation, so that a stall moves no limit; at least 3 % off counts. At most half of them, none of
    fewer than 4, and none for lying on another level (`level_shift`) that they held. MSER (White, Simulation 69, 1997)
    was tried: it cuts a third to a half of runs that do not drift.
    """
    shift = level_shift(epochs_s)
    if shift is not None and _is_level(epochs_s[:shift], median(epochs_s[shift:])):
        return leading_drift(epochs_s[:shift])
    half = len(epochs_s) // 2
    if len(epochs_s) < LEAST_EPOCHS:
        return 0
    middle, spread = _robust(epochs_s[half:])
    limit = _BAND * max(spread, _LEAST_SPREAD * middle)
    return next((n for n in range(half) if abs(epochs_s[n] - middle) <= limit), half)


def outliers(figures: Sequence[float]) -> tuple[int, ...]:
    """Places of the figures far from the median; none among fewer than 3.

    Far is 3.5 robust standard deviations (Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993), more where
    there are few figures, as Student's t has it, and 3.5 % of the median at least.
    """
    from scipy.special import stdtr, stdtrit

    if len(figures) < 3:
        return ()
    middle, spread = _robust(figures)
    cautious = -float(stdtrit(len(figures) - 1, stdtr(math.inf, -_OUTLIER)))
    far = max(cautious * spread, _OUTLIER * _LEAST_SPREAD * middle)
    return tuple(n for n, figure in enumerate(figures) if abs(figure - middle) > far)


def level_shift(epochs_s: Sequence[float]) -> int | None:
    """The place from which epochs lie on another level, None when there is none: a change of 2 % at least.

    Pettitt's rank test (Applied Statistics 28, 1979) at 5 %, which outliers do not move; it sees none in fewer than 11.
    """
    n = len(epochs_s)
    ordered = sorted(epochs_s)
    ranks = ((bisect_left(ordered, each) + bisect_right(ordered, each) + 1) / 2 for each in epochs_s)
    sums = [abs(2 * ranked - place * (n + 1)) for place, ranked in enumerate(accumulate(ranks), start=1)]
    if not sums or 2 * math.exp(-6 * max(sums) ** 2 / (n**3 + n**2)) > FALSE_VERDICTS:
        return None
    place = sums.index(max(sums)) + 1
    before, after = median(epochs_s[:place]), median(epochs_s[place:])
    return place if abs(after - before) >= _LEAST_SHIFT * before else None


@dataclass(frozen=True)
class _Difference:
    """Of the means of the logs of two sides, whose variances and sizes these are."""

    mean: float
    variances: tuple[float, float]
    sizes: tuple[int, int]

    @property
    def parts(self) -> tuple[float, float]:
        """What each side adds to the square of the standard error."""
        return self.variances[0] / self.sizes[0], self.variances[1] / self.sizes[1]

    @property
    def error(self) -> float:
        return math.sqrt(sum(self.parts))

    @property
    def freedom(self) -> float:
        squares = sum(part**2 / (size - 1) for part, size in zip(self.parts, self.sizes, strict=True))
        return sum(self.parts) ** 2 / squares

    def critical(self, error: float) -> float:
        """The half width of the interval in standard errors."""
        from scipy.special import stdtrit

        if self.sizes[0] == self.sizes[1]:
            return float(stdtrit(self.freedom, 1 - error / 2))
        each = [float(stdtrit(size - 1, 1 - error / 2)) for size in self.sizes]
        return sum(part * value for part, value in zip(self.parts, each, strict=True)) / sum(self.parts)


def _difference(left: Sequence[float], right: Sequence[float]) -> _Difference | None:
    """None when a side has fewer than two runs or none scatters."""
    if min(len(left), len(right)) < 2:
        return None
    means, variances = zip(*(moments([math.log(figure) for figure in side]) for side in (left, right)), strict=True)
    found = _Difference(means[0] - means[1], variances, (len(left), len(right)))
    return found if sum(variances) > _LEAST_VARIANCE else None


def _around(middle: float, reach: float) -> Interval:
    """The ends of an interval of logs, back as figures."""
    reach = min(reach, _MOST_APART)
    return math.exp(middle - reach), math.exp(middle + reach)


def moments(values: Sequence[float]) -> tuple[float, float]:
    """Mean and variance of two values or more; `statistics.variance` is exact, and a hundred times as slow."""
    mean = fmean(values)
    return mean, math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _is_level(epochs_s: Sequence[float], level_s: float) -> bool:
    """Whether they lay on one level before they went to another, and did not approach it."""
    half = len(epochs_s) // 2
    if len(epochs_s) < LEAST_EPOCHS:
        return False
    early, late = median(epochs_s[:half]), median(epochs_s[half:])
    return abs(late - early) < abs(level_s - late) / 4


def _robust(figures: Sequence[float]) -> tuple[float, float]:
    """Median and robust standard deviation."""
    middle = median(figures)
    return middle, _NORMAL_MAD * median(abs(figure - middle) for figure in figures)
