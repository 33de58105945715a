"""The tests of drift against scipy's."""

import numpy as np
import pytest
import scipy.stats

from engram.production import drift


@pytest.mark.parametrize("shift", [0.0, 0.1, 0.3])
def test_the_distance_of_two_samples_is_scipys(shift):
    draw = np.random.default_rng(3)
    one, other = draw.normal(size=400), draw.normal(shift, size=600)
    distance, chance = drift.kolmogorov_smirnov(one, other)
    assert distance == pytest.approx(scipy.stats.ks_2samp(one, other, method="asymp").statistic)
    limit = scipy.stats.kstwobign.sf(distance * np.sqrt(400 * 600 / 1000))
    assert chance == pytest.approx(limit, rel=1e-6, abs=1e-12)


def test_ties_count_once():
    one, other = np.array([1.0, 1, 2, 2, 3]), np.array([1.0, 2, 2, 3, 3])
    assert drift.kolmogorov_smirnov(one, other)[0] == pytest.approx(
        scipy.stats.ks_2samp(one, other, method="asymp").statistic
    )


def test_shares_of_texts_are_compared_by_pearsons_statistic():
    draw = np.random.default_rng(4)
    one = draw.choice(["a", "b", "c"], 500, p=[0.5, 0.3, 0.2]).tolist()
    other = draw.choice(["a", "b", "c"], 300, p=[0.4, 0.3, 0.3]).tolist()
    table = [[sample.count(name) for name in "abc"] for sample in (one, other)]
    theirs = scipy.stats.chi2_contingency(table, correction=False)
    assert drift.chi_square(one, other) == pytest.approx((theirs.statistic, theirs.pvalue))


def test_rare_texts_count_as_one():
    one = ["a"] * 200 + [f"rare {each}" for each in range(50)]
    other = ["a"] * 200 + [f"new {each}" for each in range(50)]
    assert drift.chi_square(one, other) == (0.0, 1.0)
    assert drift.chi_square(["a"] * 9, ["a"] * 9) == (0.0, 1.0)


def test_p_values_are_corrected_for_their_number():
    draw = np.random.default_rng(5)
    numbers = {str(each): (draw.normal(size=300), draw.normal(size=300)) for each in range(40)}
    assert not any(each.drifted for each in drift.drifts(numbers, {}))
    numbers["moved"] = (draw.normal(size=300), draw.normal(1, size=300))
    found = drift.drifts(numbers, {"kind": (["a", "b"] * 200, ["a"] * 300 + ["b"] * 100)})
    assert [each.column for each in found if each.drifted] == ["moved", "kind"]


def test_labels_contradict_where_a_sure_model_is_no_longer_right():
    sure, unsure = np.full(300, 0.99), np.full(300, 0.5)
    right = np.arange(300) % 20 != 0
    wrong = np.arange(300) % 2 == 0
    assert drift.contradiction(sure, right, sure, wrong).loss(0.975).low > 0.3
    assert drift.contradiction(sure, right, sure, right).loss(0.975).estimate == 0
    assert drift.contradiction(sure, right, unsure, wrong) is None
