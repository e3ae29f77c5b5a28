"""Time as a function of the number of samples: a fitted line, its intervals, and tests that it is a line. Pure maths.

The model is `seconds = fixed_s + sample_s x samples`, and the noise of a run is a share of its time, the same for small
and large runs: what slows a run slows all of it. That is weighted least squares with weights 1 / (fitted time)^2, found
by repeated weighting (gamma quasi-likelihood with identity link; McCullagh and Nelder, Generalized Linear Models, 2nd
ed., 1989, ch. 8). Intervals are those of Student's t (Draper and Smith, Applied Regression Analysis, 3rd ed., 1998,
sections 1.4 and 9.2). One run is one observation: its epochs share what made it slow.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.domain.statistics import Interval, moments
from orchestrator.errors import UsageError

CONFIDENCE = 0.95
REFUSAL_LEVEL = 0.01
"""A check refuses when what it sees would come by chance, on a law that holds, less often than this."""
TOLERANCE = 0.005
"""A misfit of less than half a per cent at every size is no reason to refuse, however surely it is there."""
MOST_UNSEEN_BEND = 0.5
"""Runs that differ so much that a curve of half the time would go unnoticed cannot show that there is a line."""
LEAST_SIZES, LEAST_REPEATS = 3, 2
_ROUNDS = 100


@dataclass(frozen=True)
class Point:
    """One run: how many samples, how many seconds, and its place in the order in which the runs began."""

    samples: int
    seconds: float
    order: int


@dataclass(frozen=True)
class Term:
    """A part of a time: `variance` is that of its estimate, `run_variance` that of one more run around the truth."""

    seconds: float
    variance: float
    run_variance: float
    freedom: float

    def times(self, factor: float) -> Term:
        """The same, so many times over, all of it in one run: the deviations add up as they are."""
        return Term(self.seconds * factor, self.variance * factor**2, self.run_variance * factor**2, self.freedom)


@dataclass(frozen=True)
class Line:
    """seconds = fixed_s + sample_s x samples. `noise` is the standard deviation of a run as a share of its time.

    `weight`, `centre` and `spread` are the sum of the weights, their mean number of samples, and the weighted sum of
    squares around it: what the variance of the line at any place follows from. `unseen_bend` is how far, as a share of
    the time at the largest size, a curve could leave the line without being noticed.
    """

    fixed_s: float
    sample_s: float
    noise: float
    freedom: int
    weight: float
    centre: float
    spread: float
    largest: int
    unseen_bend: float = 0.0

    def at(self, samples: float) -> Term:
        """The time for so many samples."""
        seconds = self.fixed_s + self.sample_s * samples
        variance = self.noise**2 * (1 / self.weight + (samples - self.centre) ** 2 / self.spread)
        return Term(seconds, variance, (self.noise * seconds) ** 2, self.freedom)

    @property
    def sample_interval_s(self) -> Interval:
        """The interval of `sample_s`."""
        half = _t(self.freedom) * self.noise / math.sqrt(self.spread)
        return self.sample_s - half, self.sample_s + half


def mean_term(values: Sequence[float]) -> Term:
    """What is the same at every size: the mean over two runs or more."""
    mean, variance = moments(values)
    return Term(mean, variance / len(values), variance, len(values) - 1)


def interval(terms: Sequence[Term], *, of_one_run: bool) -> Interval:
    """The interval of a sum: of the law behind it, or of the time of one more run. Never below 0.

    The degrees of freedom are those of Welch and Satterthwaite (Biometrics Bulletin 2, 1946, p. 110).
    """
    parts = [(term.variance + (term.run_variance if of_one_run else 0.0), term.freedom) for term in terms]
    seconds, variance = math.fsum(term.seconds for term in terms), math.fsum(part for part, _ in parts)
    if variance == 0:
        return seconds, seconds
    freedom = variance**2 / math.fsum(part**2 / each for part, each in parts)
    half = _t(freedom) * math.sqrt(variance)
    return max(0.0, seconds - half), seconds + half


def fit_line(points: Sequence[Point], least_samples: int = 1) -> Line:
    """Fit the line and check that it holds. `least_samples`: the fewest that can be trained on, a global batch.

    Raises UsageError with the reason and what to measure next: too few sizes or repeats; lack of fit against the
    scatter of repeats; curvature; a drift over the order of the runs; a time that does not grow with the samples, or
    grows faster than they do.
    """
    _check_enough(points, least_samples)
    line, weights = _weighted(points)
    residuals = [point.seconds - line.at(point.samples).seconds for point in points]
    if line.noise > 1e-9:  # else the line goes through every point, to the last digits
        _check_shape(points, line, weights, residuals)
        _check_drift(points, line, weights, residuals)
    _check_signs(points, line)
    bend = _unseen_bend(points, line, weights, residuals)
    if bend > MOST_UNSEEN_BEND:
        raise UsageError(
            f"the runs differ too much ({line.noise:.0%} of their time) to tell a line from a curve: a bend of "
            f"{bend:.0%} at {line.largest:,} samples would go unseen",
            f"measure on a quiet machine, larger sizes and more repeats: {_sizes(line.largest, 4)}",
        )
    return replace(line, unseen_bend=bend)


def _weighted(points: Sequence[Point]) -> tuple[Line, list[float]]:
    fitted = [point.seconds for point in points]
    for _ in range(_ROUNDS):
        weights = [1 / seconds**2 for seconds in fitted]
        line = _least_squares(points, weights)
        before, fitted = fitted, [line.at(point.samples).seconds for point in points]
        if min(fitted) <= 0:
            raise _faster_than_data(points)
        if all(abs(new - old) <= 1e-8 * old for new, old in zip(fitted, before, strict=True)):
            break
    return line, weights


def _least_squares(points: Sequence[Point], weights: Sequence[float]) -> Line:
    samples, seconds = [float(point.samples) for point in points], [point.seconds for point in points]
    weight = math.fsum(weights)
    centre = _dot(weights, samples) / weight
    off = [each - centre for each in samples]
    spread = _dot(weights, off, off)
    sample_s = _dot(weights, off, seconds) / spread
    middle_s = _dot(weights, seconds) / weight
    residuals = [each - middle_s - sample_s * away for each, away in zip(seconds, off, strict=True)]
    freedom = len(points) - 2
    noise = math.sqrt(_dot(weights, residuals, residuals) / freedom)
    return Line(
        middle_s - sample_s * centre, sample_s, noise, freedom, weight, centre, spread, max(p.samples for p in points)
    )


def _check_enough(points: Sequence[Point], least_samples: int) -> None:
    runs_of = {size: [p for p in points if p.samples == size] for size in sorted({p.samples for p in points})}
    repeated = [size for size, runs in runs_of.items() if len(runs) >= LEAST_REPEATS]
    if len(repeated) >= LEAST_SIZES:
        return
    there = ", ".join(f"{size:,} x {len(runs)}" for size, runs in runs_of.items()) or "none"
    first = max(max(runs_of, default=1000) // 4, least_samples)
    raise UsageError(
        f"a fit needs at least {LEAST_SIZES} data sizes with {LEAST_REPEATS} runs of each; measured: {there}",
        f"launch the same with {_sizes(first, LEAST_REPEATS + 1)}",
    )


def _check_shape(points: Sequence[Point], line: Line, weights: Sequence[float], residuals: Sequence[float]) -> None:
    """Lack of fit against pure error, with all the freedom of the sizes; then the one direction of a curve."""
    groups: dict[int, list[int]] = defaultdict(list)
    for number, point in enumerate(points):
        groups[point.samples].append(number)
    means = {size: math.fsum(residuals[n] for n in numbers) / len(numbers) for size, numbers in groups.items()}
    off = {size: mean / line.at(size).seconds for size, mean in means.items()}
    worst = max(off, key=lambda size: abs(off[size]))
    if abs(off[worst]) < TOLERANCE:
        return
    scatter = [residual - means[point.samples] for residual, point in zip(residuals, points, strict=True)]
    pure, whole = _dot(weights, scatter, scatter), _dot(weights, residuals, residuals)
    lack_of_fit = _chance(whole - pure, len(groups) - 2, pure, len(points) - len(groups))
    curved = _chance_of_column([float(p.samples) ** 2 for p in points], points, weights, residuals)
    if min(lack_of_fit, curved) < REFUSAL_LEVEL:
        raise UsageError(
            f"time does not grow along a straight line with the data: {worst:,} samples took {abs(off[worst]):.1%} "
            f"{'more' if off[worst] > 0 else 'less'} than the fit, which the scatter of repeats does not explain "
            f"(lack of fit p = {lack_of_fit:.2g}, curvature p = {curved:.2g})",
            f"measure where it has become straight, beyond the largest size: {_sizes(line.largest, 3)}; "
            "a step may be a memory limit: `compare` shows input wait and memory",
        )


def _check_drift(points: Sequence[Point], line: Line, weights: Sequence[float], residuals: Sequence[float]) -> None:
    """Runs are taken as independent; a machine that gets slower (or warmer, or busier) from run to run is not that."""
    later = [point.order * line.at(point.samples).seconds for point in points]
    drift = _chance_of_column(later, points, weights, residuals)
    if drift < REFUSAL_LEVEL and line.noise > TOLERANCE:
        raise UsageError(
            f"the runs drifted: the residuals rise or fall with the order of the runs (p = {drift:.2g})",
            "launch the sweep again, with its sizes in another order and nothing else on the machine",
        )


def _check_signs(points: Sequence[Point], line: Line) -> None:
    low, high = line.sample_interval_s
    if low <= 0:
        raise UsageError(
            f"the time per sample is not known: it lies between {low * 1e6:.3g} and {high * 1e6:.3g} µs, so the data "
            f"sizes measured (up to {line.largest:,}) hardly show in the time",
            f"measure larger sizes, farther apart, and more repeats: {_sizes(3 * line.largest, 4)}",
        )
    fixed = line.at(0)
    if fixed.seconds + _t(line.freedom, 1 - REFUSAL_LEVEL) * math.sqrt(fixed.variance) < -TOLERANCE * points[0].seconds:
        raise _faster_than_data(points)


def _faster_than_data(points: Sequence[Point]) -> UsageError:
    largest = max(point.samples for point in points)
    return UsageError(
        "time grows faster than the data: the fitted intercept is negative",
        f"measure larger sizes, where it may have become straight: {_sizes(largest, 3)}",
    )


def _chance_of_column(
    column: Sequence[float], points: Sequence[Point], weights: Sequence[float], residuals: Sequence[float]
) -> float:
    """How often chance alone would make one more column of the model explain so much (F test of the extra squares)."""
    rest = _beyond_line(column, points, weights)
    whole, extent = _dot(weights, residuals, residuals), _dot(weights, rest, rest)
    if extent <= 1e-18 * _dot(weights, column, column):
        return 1.0  # it is a line itself
    explained = _dot(weights, rest, residuals) ** 2 / extent
    return _chance(explained, 1, whole - explained, len(points) - 3)


def _unseen_bend(points: Sequence[Point], line: Line, weights: Sequence[float], residuals: Sequence[float]) -> float:
    """The half width of the interval of a quadratic term, as what it would add at the largest size, a share of 1."""
    rest = _beyond_line([float(p.samples) ** 2 for p in points], points, weights)
    extent = _dot(weights, rest, rest)
    left = _dot(weights, residuals, residuals) - _dot(weights, rest, residuals) ** 2 / extent
    freedom = len(points) - 3
    half = _t(freedom) * math.sqrt(max(0.0, left) / freedom / extent)
    at_largest = next(each for each, point in zip(rest, points, strict=True) if point.samples == line.largest)
    return half * abs(at_largest) / line.at(line.largest).seconds


def _beyond_line(column: Sequence[float], points: Sequence[Point], weights: Sequence[float]) -> list[float]:
    """What of a column no line over the samples can explain."""
    as_points = [Point(p.samples, value, 0) for p, value in zip(points, column, strict=True)]
    along = _least_squares(as_points, weights)
    return [value - along.fixed_s - along.sample_s * p.samples for p, value in zip(points, column, strict=True)]


def _chance(explained: float, freedom: int, left: float, left_freedom: int) -> float:
    """P(F >= f). Without residuals, what is explained is not by chance."""
    from scipy.special import fdtrc

    if left <= 1e-12 * explained:
        return 0.0
    return float(fdtrc(freedom, left_freedom, max(0.0, explained) / freedom / (left / left_freedom)))


def _t(freedom: float, quantile: float = (1 + CONFIDENCE) / 2) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, quantile))


def _dot(*columns: Sequence[float]) -> float:
    return math.fsum(math.prod(row) for row in zip(*columns, strict=True))


def _sizes(first: int, repeats: int) -> str:
    return f"--data-size {first},{2 * first},{4 * first} --repeats {repeats} (of data with as many samples)"
