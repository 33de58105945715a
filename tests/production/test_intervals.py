"""The gate's intervals against scipy, brute force and what they promise."""

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats

from engram.errors import EngramError
from engram.production import intervals

LEVEL = 0.975


@pytest.mark.parametrize(
    ("first", "second", "value"),
    [
        (1, 1, 0.3),
        (5, 2, 0.9),
        (0.5, 14.5, 0.01),
        (200, 300, 0.4),
        (1, 1000, 5e-4),
        (5e3, 2e4, 0.2),
    ],
)
def test_the_incomplete_beta_function_is_scipys(first, second, value):
    ours = intervals.regularised_beta(value, first, second)
    assert ours == pytest.approx(scipy.special.betainc(first, second, value), rel=1e-9)


@pytest.mark.parametrize("freedom", [1, 5, 29, 1000, 1e5])
@pytest.mark.parametrize("level", [0.025, 0.5, 0.9, 0.975, 0.999])
def test_students_quantile_is_scipys(freedom, level):
    ours = intervals.student_quantile(level, freedom)
    assert ours == pytest.approx(scipy.stats.t.ppf(level, freedom), abs=1e-8)


@pytest.mark.parametrize(("count", "total"), [(0, 20), (3, 50), (50, 50), (700, 1000)])
def test_the_interval_of_a_share_is_clopper_and_pearsons(count, total):
    exact = scipy.stats.binomtest(count, total).proportion_ci(2 * LEVEL - 1, "exact")
    ours = intervals.share(count, total, LEVEL)
    assert ours.low == pytest.approx(exact.low, abs=1e-9)
    assert ours.high == pytest.approx(exact.high, abs=1e-9)
    chance = scipy.stats.binomtest(count, total, 0.1, "greater").pvalue
    assert intervals.share_above(count, total, 0.1) == pytest.approx(chance, rel=1e-9)


def score_by_search(gained, lost, total, null):
    """Return Tango's statistic with the likeliest shares under the null found by search."""
    same = total - gained - lost

    def unlikely(share):
        return -sum(
            count * math.log(max(chance, 1e-300))
            for count, chance in (
                (gained, share + null),
                (lost, share),
                (same, 1 - 2 * share - null),
            )
            if count
        )

    low, high = max(0.0, -null), (1 - null) / 2
    share = scipy.optimize.minimize_scalar(
        unlikely, bounds=(low, high), method="bounded", options={"xatol": 1e-12}
    ).x
    return (gained - lost - total * null) / math.sqrt(total * (2 * share + null - null**2))


@pytest.mark.parametrize(
    ("gained", "lost", "total"), [(3, 9, 200), (12, 2, 60), (20, 25, 1000), (1, 0, 30)]
)
def test_tangos_interval_is_where_the_score_test_stops_refusing(gained, lost, total):
    found = intervals.paired_shares(gained, lost, total, LEVEL)
    quantile = scipy.stats.norm.ppf(LEVEL)
    assert found.estimate == pytest.approx((gained - lost) / total)
    assert score_by_search(gained, lost, total, found.low) == pytest.approx(quantile, abs=1e-4)
    assert score_by_search(gained, lost, total, found.high) == pytest.approx(-quantile, abs=1e-4)
    for null in (-0.2, -0.05, 0.01):
        chance = scipy.stats.norm.cdf(score_by_search(gained, lost, total, null))
        ours = intervals.paired_shares_below(gained, lost, total, null)
        assert ours == pytest.approx(chance, abs=1e-5)


def test_without_a_single_flip_the_bounds_are_those_of_the_formula():
    quantile = scipy.stats.norm.ppf(LEVEL)
    for total in (10, 50, 400):
        reach = quantile**2 / (total + quantile**2)
        found = intervals.paired_shares(0, 0, total, LEVEL)
        assert (found.low, found.high) == pytest.approx((-reach, reach), abs=1e-9)


def test_all_that_flips_one_way_is_bounded_too():
    assert intervals.paired_shares(0, 50, 50, LEVEL).high < -0.8
    assert intervals.paired_shares(50, 0, 50, LEVEL).low > 0.8
    assert intervals.paired_shares(0, 0, 0, LEVEL)[1:] == (-1.0, 1.0)


@pytest.mark.parametrize("total", [30, 40])
@pytest.mark.parametrize(("gain", "loss"), [(0.0, 0.05), (0.05, 0.1), (0.02, 0.07), (0.1, 0.15)])
def test_the_lower_bound_holds_as_often_as_it_says(total, gain, loss):
    """Exact: every outcome of the multinomial, by its probability."""
    held = 0.0
    for gained in range(total + 1):
        for lost in range(total + 1 - gained):
            ways = math.comb(total, gained) * math.comb(total - gained, lost)
            same = total - gained - lost
            chance = ways * gain**gained * loss**lost * (1 - gain - loss) ** same
            if (
                chance > 1e-7
                and intervals.paired_shares(gained, lost, total, LEVEL).low <= gain - loss
            ):
                held += chance
    assert held > 0.96  # nominally 0.975: the test is asymptotic


def test_the_interval_of_a_mean_is_students():
    draws = np.random.default_rng(0).normal(0.3, 2, 80)
    error = draws.std(ddof=1) / math.sqrt(80)
    low, high = scipy.stats.t.interval(2 * LEVEL - 1, 79, draws.mean(), error)
    assert intervals.means(draws, LEVEL)[1:] == pytest.approx((low, high))
    chance = scipy.stats.ttest_1samp(draws, 0.5, alternative="less").pvalue
    assert intervals.means_below(draws, 0.5) == pytest.approx(chance)


@pytest.mark.parametrize("unit", [0.5, 3.0])
def test_the_interval_of_a_mean_with_room_for_changes_is_where_its_test_stops_refusing(unit):
    draws = np.random.default_rng(1).normal(0.1, 1, 50)
    found = intervals.means(draws, LEVEL, unit)
    assert intervals.means_below(draws, found.high, unit) == pytest.approx(1 - LEVEL)
    assert intervals.means_below(draws, found.low, unit) == pytest.approx(LEVEL)
    spread = draws.var(ddof=1) + unit * (found.high - draws.mean())
    reach = scipy.stats.t.ppf(LEVEL, 49) * math.sqrt(spread / 50)
    assert found.high - draws.mean() == pytest.approx(reach)
    none = intervals.means(np.zeros(60), LEVEL, 1.0)
    assert none.low == pytest.approx(-(scipy.stats.t.ppf(LEVEL, 59) ** 2) / 60)


def test_few_or_broken_differences_say_nothing():
    assert intervals.means(np.ones(29), LEVEL)[1:] == (-math.inf, math.inf)
    assert intervals.means_below(-np.ones(29), 0) == 1
    assert intervals.means_below(np.full(50, -np.inf), 0) == 1


def test_holm_is_the_step_down_of_bonferroni():
    values = [0.01, 0.04, 0.03, 0.005]
    assert intervals.holm(values) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert intervals.holm([]) == []


def test_counts_that_are_none_are_refused():
    with pytest.raises(EngramError, match="no counts"):
        intervals.paired_shares(8, 5, 10, LEVEL)
