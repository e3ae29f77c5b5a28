"""A fitted line: its interval contains laws that are lines, and laws n^p that the runs cannot tell from one."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from orchestrator.errors import UsageError
from orchestrator.predict.line import Point, Term, fit_line, interval, mean_term

SIZES = (1000, 2000, 4000)
Law = Callable[[float], float]


def sweep(law: Law, sizes: Sequence[int], repeats: int, noise: float, rng: random.Random) -> list[Point]:
    """Each size so often; the noise is a share of a run's time."""
    return [Point(size, law(size) * (1 + rng.gauss(0, noise))) for size in sizes * repeats]


@pytest.mark.parametrize("times", [0.1, 1, 10, 25, 100, 25_000])
@pytest.mark.parametrize(("power", "covered"), [(1.0, 0.95), (1.05, 0.93), (0.95, 0.93)])
def test_line_and_bend_include_a_power_law_wherever_it_is_asked_for(power: float, covered: float, times: float) -> None:
    """1,000 sweeps with 0.2 to 2 % of noise; also without any, where the line alone is wrong beyond its sizes."""
    rng, inside = random.Random(20261127), 0
    law: Law = lambda n: 0.1 + 1e-3 * n**power  # noqa: E731
    asked = times * SIZES[-1]
    for _ in range(1000):
        line = fit_line(sweep(law, SIZES, rng.choice([2, 3, 4]), rng.choice([0.002, 0.005, 0.01, 0.02]), rng))
        low, high = interval([line.at(asked)], of_one_run=False)
        below, above = (line.fit.at(asked) * math.expm1(each) for each in line.bend_at(asked))
        inside += low + below <= law(asked) <= high + above
    assert inside / 1000 >= covered


def test_the_interval_of_a_line_alone_is_no_wider_than_it_says() -> None:
    """1,000 random laws, sweeps and noises, far beyond the sizes: 93 to 97 % for the law and for one more run."""
    rng, law_in, run_in, far = random.Random(20261121), 0, 0, 60e9
    for _ in range(1000):
        fixed_s, sample_s, noise = rng.uniform(0.0, 1.0), 10 ** rng.uniform(-5, -2), rng.uniform(0.002, 0.1)
        sizes = rng.choice([SIZES, (500, 2000, 8000), (1000, 2000, 3000, 4000), (600, 6000, 60000)])
        law: Law = lambda n, a=fixed_s * sample_s * 1000, b=sample_s: a + b * n  # type: ignore[misc]  # noqa: E731
        line = fit_line(sweep(law, sizes, rng.choice([2, 3, 4]), noise, rng))
        low, high = interval([line.at(far)], of_one_run=False)
        law_in += low <= law(far) <= high
        low, high = interval([line.at(far)], of_one_run=True)
        run_in += low <= law(far) * (1 + rng.gauss(0, noise)) <= high
    assert 930 <= law_in <= 970
    assert 930 <= run_in <= 970


def test_exact_lines_have_no_width_and_no_bend() -> None:
    """Without noise nothing is left over; rounding is no bend."""
    line = fit_line(sweep(lambda n: 0.3 + 2e-5 * n, SIZES, 2, 0.0, random.Random(1)))
    assert line.fit.at(60e9) == pytest.approx(0.3 + 2e-5 * 60e9, rel=1e-9)
    low, high = interval([line.at(60e9)], of_one_run=True)
    assert high - low < 1e-6 * high
    assert max(map(abs, line.bend_at(60e9))) < 1e-6


def test_line_and_bend_are_those_of_numpys_weighted_least_squares() -> None:
    """Weights of one over the mean time of the size; the bend is the interval of the third column, n ln n."""
    measured = sweep(lambda n: 0.5 + 1e-3 * n, SIZES, 3, 0.03, random.Random(3))
    line = fit_line(measured)
    n, seconds = np.array([float(p.samples) for p in measured]), np.array([p.seconds for p in measured])
    weights = 1 / np.array([seconds[n == size].mean() for size in n])
    (sample_s, fixed_s), covariance = np.polyfit(n, seconds, 1, w=weights, cov=True)
    assert (line.fit.slope, line.fit.fixed) == (pytest.approx(sample_s), pytest.approx(fixed_s))
    assert line.at(0).variance == pytest.approx(covariance[1, 1])
    assert line.at(60e9).variance == pytest.approx(covariance[0, 0] * 60e9**2, rel=1e-4)
    columns = np.stack([np.ones_like(n), n, n * np.log(n)], axis=1) * weights[:, None]
    found, [squares], *_ = np.linalg.lstsq(columns, seconds * weights, rcond=None)
    error = np.sqrt(np.linalg.inv(columns.T @ columns)[2, 2] * squares / (len(n) - 3))
    half = 2.446912 * error  # Student's t of 6 degrees, 97.5 %
    assert line.bend == (pytest.approx(found[2] - half, rel=1e-4), pytest.approx(found[2] + half, rel=1e-4))


@pytest.mark.parametrize(
    ("sizes", "seconds", "says", "following"),
    [
        ((1000, 2000), (1, 2, 1, 2), "measured: 1,000 x 2, 2,000 x 2", "--data-size 800,1600,3200 --repeats 3"),
        ((1000, 2000, 4000, 8000), (1, 2, 4, 8), "2 runs of each", "--repeats 3"),
        ((1, 2, 3), (2, 2.1, 1.9, 2.1, 1.9, 2.05), "per sample is not known", "larger sizes"),
    ],
    ids=["two sizes", "no repeats", "flat"],
)
def test_too_few_runs_and_a_flat_time_are_refused(
    sizes: tuple[int, ...], seconds: tuple[float, ...], says: str, following: str
) -> None:
    """With what is missing, and what to measure next, of a global batch at least."""
    measured = [Point(sizes[number % len(sizes)], each) for number, each in enumerate(seconds)]
    with pytest.raises(UsageError, match=says) as refusal:
        fit_line(measured, least_samples=800)
    assert following in refusal.value.hint


@pytest.mark.parametrize(
    ("terms", "of_one_run", "half"),
    [
        ([Term(5, 2, 0, 4), Term(5, 2, 0, 4)], False, 2.306 * 2),  # 4 degrees each are 8 together
        ([mean_term([9.0, 10.0, 11.0])], False, 4.303 / 3**0.5),  # a mean of three runs has 2
        ([mean_term([9.0, 10.0, 11.0])], True, 4.303 * (1 + 1 / 3) ** 0.5),
        ([mean_term([10.0])], True, 0.0),
    ],
)
def test_sums_of_terms_have_the_interval_of_welch_and_satterthwaite(
    terms: list[Term], of_one_run: bool, half: float
) -> None:
    """Student's t, worked out by hand."""
    low, high = interval(terms, of_one_run=of_one_run)
    assert ((high + low) / 2, (high - low) / 2) == (pytest.approx(10), pytest.approx(half, rel=1e-3))
