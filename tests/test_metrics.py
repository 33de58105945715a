"""The metrics against an example worked by hand."""

import numpy as np
import pytest

from engram.errors import EngramError
from engram.metrics import (
    average_accuracy,
    average_accuracy_over_tasks,
    forgetting,
    learning_curve_area,
)

pytestmark = pytest.mark.numerical

NAN = float("nan")
# Three tasks: what remains of each after each.
MATRIX = [[0.9, NAN, NAN], [0.8, 0.7, NAN], [0.6, 0.75, 0.5]]


def test_average_accuracy_is_the_mean_of_the_last_row():
    assert average_accuracy(MATRIX) == pytest.approx((0.6 + 0.75 + 0.5) / 3)


def test_average_accuracy_over_tasks_counts_only_tasks_seen():
    assert average_accuracy_over_tasks(MATRIX) == pytest.approx([0.9, 0.75, 1.85 / 3])


def test_forgetting_is_best_so_far_minus_final_over_the_earlier_tasks():
    # Task 1: 0.9 - 0.6. Task 2: 0.7 - 0.75, which is negative: it was learned further.
    assert forgetting(MATRIX) == pytest.approx((0.3 - 0.05) / 2)


def test_forgetting_may_use_an_accuracy_from_before_the_task_was_trained():
    evaluated_early = [[0.9, 0.95, 0.1], [0.8, 0.7, 0.1], [0.6, 0.75, 0.5]]
    assert forgetting(evaluated_early) == pytest.approx((0.3 + 0.2) / 2)


def test_forgetting_is_not_defined_with_one_task():
    assert np.isnan(forgetting([[0.5]]))


def test_learning_curve_area_by_both_rules():
    # Z_b = mean over the two tasks of b/10 and b/20: 0.075 b.
    curve = [[b / 10 for b in range(11)], [b / 20 for b in range(11)]]
    z = [0.075 * b for b in range(11)]
    assert learning_curve_area(curve) == pytest.approx((sum(z) - z[0] / 2 - z[10] / 2) / 10)
    assert learning_curve_area(curve, "mean") == pytest.approx(sum(z) / 11)


def test_the_two_rules_differ_on_a_curve_that_is_not_straight():
    curve = [[0.1] + [0.9] * 10]
    assert learning_curve_area(curve) == pytest.approx((0.05 + 9 * 0.9 + 0.45) / 10)
    assert learning_curve_area(curve, "mean") == pytest.approx((0.1 + 9.0) / 11)


def test_learning_curve_area_is_not_defined_for_shorter_tasks():
    assert np.isnan(learning_curve_area([[0.1] * 10]))


def test_leading_dimensions_are_kept():
    seeds = np.stack([MATRIX, MATRIX, MATRIX])
    assert average_accuracy(seeds).shape == forgetting(seeds).shape == (3,)
    assert learning_curve_area(np.zeros((4, 3, 11))).shape == (4,)


@pytest.mark.parametrize("metric", [average_accuracy, average_accuracy_over_tasks, forgetting])
@pytest.mark.parametrize("bad", [[0.5], [[0.5, 0.5]], [[[]]]])
def test_a_matrix_of_another_shape_is_refused(metric, bad):
    with pytest.raises(ValueError, match="tasks, tasks"):
        metric(bad)


def test_an_area_that_nobody_defined_is_refused():
    with pytest.raises(EngramError, match="no area rule 'simpson'; valid are mean, trapezoid"):
        learning_curve_area([[0.1] * 11], "simpson")
    with pytest.raises(EngramError, match="batches must be at least 1, not 0"):
        learning_curve_area([[0.1] * 11], batches=0)
