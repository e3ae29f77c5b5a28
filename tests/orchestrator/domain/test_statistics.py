"""The statistical rules: intervals, families, looks, repeats, drift, outliers, level shifts."""

from __future__ import annotations

import math
from random import Random
from statistics import fmean, median

import pytest

from orchestrator.domain.statistics import (
    POWER,
    Sides,
    decided,
    differs,
    leading_drift,
    level_shift,
    more_repeats,
    outliers,
    ratio_interval,
)


def drawn(rng: Random, runs: int, scatter: float, middle: float = 1.0) -> list[float]:
    return [middle * math.exp(rng.gauss(0, scatter)) for _ in range(runs)]


def test_the_interval_is_welchs() -> None:
    """By hand: means of logs 0.1 apart, variances 0.0002 and 0.0002, 4 degrees of freedom, t = 2.776."""
    logs = [math.exp(x) for x in (0.1 - 0.01 * 2**0.5, 0.1, 0.1 + 0.01 * 2**0.5)]
    other = [math.exp(x) for x in (-0.01 * 2**0.5, 0.0, 0.01 * 2**0.5)]
    reach = 2.776445 * (2 * 0.0002 / 3) ** 0.5
    assert ratio_interval(logs, other) == pytest.approx((math.exp(0.1 - reach), math.exp(0.1 + reach)))


@pytest.mark.parametrize(
    ("left", "right"), [([2.0], [1.0, 1.1]), ([], []), ([2.0, 2.0], [1.0, 1.0]), ([0.3, 0.1 + 0.2], [1.0, 1.0])]
)
def test_one_run_or_no_scatter_at_all_gives_no_interval(left: list[float], right: list[float]) -> None:
    """Equal to the last digit is a copy, or a made figure: nothing tells how far the next one lies."""
    assert ratio_interval(left, right) is None
    assert not differs(left, right)
    assert more_repeats(left, right) is None


def test_repeats_that_scatter_wildly_are_undecided_and_no_overflow() -> None:
    """Two runs a side, one of them stalled, among a hundred comparisons: an interval wider than any float."""
    wild = ([1.0, 6.0], [1.0, 1.001])
    assert not differs(*wild, 0.05 / 100)
    low, high = ratio_interval(*wild, 0.05 / 100) or (1.0, 1.0)
    assert 0 < low < 1e-6 < 1e6 < high < math.inf


def test_few_runs_that_scatter_more_than_many_do_not_shrink_the_interval() -> None:
    """Two runs against five, the two scattering twice as much: Welch's interval would miss the truth in 10 %."""
    rng = Random(3)
    cases = 2000
    missed = sum(differs(drawn(rng, 2, 0.04), drawn(rng, 5, 0.02)) for _ in range(cases))
    assert 0.03 < missed / cases < 0.05


def test_a_report_of_three_comparisons_is_false_in_5_percent_at_most() -> None:
    """All three equal: each by itself would be false in 5 %, one of them in 14 %."""
    rng = Random(4)
    reports = 1000
    family = [[[(drawn(rng, 5, 0.02), drawn(rng, 5, 0.02))] for _ in range(3)] for _ in range(reports)]
    false = sum(any(any(sure) for sure in decided(report)) for report in family)
    assert 0.03 < false / reports <= 0.05


def test_a_comparison_that_is_decided_leaves_more_to_the_others() -> None:
    """Holm: the second is tested at 5 % once the first has passed at 2.5 %; time and money of one count once."""
    rng = Random(1)
    clear: Sides = drawn(rng, 3, 0.01, 9), drawn(rng, 3, 0.01)
    close: Sides = [1.03, 1.05, 1.07], [0.99, 1.0, 1.01]
    assert differs(*close, 0.05)
    assert not differs(*close, 0.025)
    assert decided([[close], [close]]) == [[False], [False]]
    assert decided([[clear], [close]]) == [[True], [True]]
    assert decided([[clear, close]]) == [[True, True]]
    assert decided([[clear], [([1.0], [2.0])]]) == [[True], [False]]


@pytest.mark.parametrize(("truth", "scatter"), [(1.05, 0.05), (1.03, 0.02)])
def test_as_many_more_repeats_as_asked_for_decide_mostly(truth: float, scatter: float) -> None:
    """Where effect and scatter are as they seemed; half of them would not do."""
    rng = Random(8)
    apart = scatter / 2**0.5
    pilot: Sides = (
        [truth * math.exp(apart), truth * math.exp(-apart)],
        [math.exp(apart), math.exp(-apart)],
    )
    more = more_repeats(*pilot)
    assert more is not None

    def share(runs: int) -> float:
        return sum(differs(drawn(rng, runs, scatter, truth), drawn(rng, runs, scatter)) for _ in range(500)) / 500

    assert POWER - 0.06 < share(2 + more) < POWER + 0.09
    assert share(2 + more // 2) < POWER - 0.1


def test_a_difference_that_scatter_drowns_asks_for_no_number() -> None:
    """More than 100 more repeats are no advice."""
    assert more_repeats([1.0, 1.2], [1.001, 1.2]) is None


@pytest.mark.parametrize(
    ("epochs_s", "cut"),
    [
        ([3.0, 2.4, 2.1, 2.0, 2.01, 1.99, 2.0, 2.0], 3),
        ([2.0, 2.01, 1.99, 2.02, 2.0, 1.98], 0),
        ([2.0, 2.01, 9.0, 2.0, 9.0, 2.0, 2.02, 1.99], 0),  # stalls move no limit
        ([9.0, 2.0, 2.0, 2.0, 2.0, 2.0], 1),
        ([9.0, 2.0, 2.0], 0),  # too few to tell
        ([2.05, 2.0, 2.0, 2.0], 0),  # within 3 %
        ([8.0, 7.0, 6.0, 3.02, 3.0, 2.98], 3),  # never more than half
        ([1.0, 1.2, 1.5, 1.5, 1.5, 1.5], 2),  # a chip that grows hot
        ([2.0] * 12 + [2.5] * 8, 0),  # another level, which is no drift
        ([2.9, 2.0, *[2.0] * 12, *[2.5] * 10], 1),
        ([2.0 + 0.9**n for n in range(20)], 8),
        ([], 0),
    ],
)
def test_leading_epochs_that_drift_are_cut(epochs_s: list[float], cut: int) -> None:
    """Up to the first one within the limits of the later half."""
    assert leading_drift(epochs_s) == cut


def test_less_than_half_of_a_drift_is_left_in_the_median() -> None:
    """Epochs that start half as slow again and settle within a few, with a stall now and then."""
    rng = Random(9)
    with_it, without_it = [], []
    for _ in range(300):
        stalls = [1 + (rng.random() < 0.05) for _ in range(15)]
        slow = [1 + 0.5 * math.exp(-n / 2) for n in range(15)]
        epochs_s = [a * b * c for a, b, c in zip(drawn(rng, 15, 0.01), stalls, slow, strict=True)]
        with_it.append(median(epochs_s) - 1)
        without_it.append(median(epochs_s[leading_drift(epochs_s) :]) - 1)
    assert abs(fmean(without_it)) < fmean(with_it) / 2


def test_calm_epochs_are_seldom_cut() -> None:
    """Of runs that do not drift at most one in fifty loses an epoch; MSER would cut a third of them."""
    rng = Random(6)
    runs = [drawn(rng, 10, 0.01) for _ in range(1000)]
    assert sum(leading_drift(epochs_s) > 0 for epochs_s in runs) <= 20


def test_outliers_and_shifts_are_found_in_what_is_kept() -> None:
    """A stall is an outlier and no shift; a shift is no outlier; scatter is neither."""
    rng = Random(7)
    calm = drawn(rng, 20, 0.01)
    assert (outliers(calm), level_shift(calm)) == ((), None)
    stalled = [*calm[:9], 2.0, *calm[10:]]
    assert (outliers(stalled), level_shift(stalled)) == ((9,), None)
    shifted = [*calm[:12], *(1.2 * seconds for seconds in calm[12:])]
    assert level_shift(shifted) == 12
    assert level_shift([1.0] * 5 + [2.0] * 5) is None  # too few to tell
    assert (outliers([1.0, 9.0]), level_shift([])) == ((), None)
