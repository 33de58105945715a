"""Rules and metrics: whatever comes, weights that are defined, or one sentence."""

import dataclasses

import numpy as np
import torch
from fuzz_cases import attempt, generated, refused
from fuzz_junk import junk, maybe, mostly, tensors
from hypothesis import strategies as st

from engram import metrics, rules

RULES = [rules.AGEM, rules.GEM, rules.MEGA1, rules.MEGA2, rules.Current, rules.Equal]
pairs = st.builds(
    lambda a, b, c: (torch.tensor([a, b]), torch.tensor([[b, c], [c, a]])),
    *[st.floats(0, 100, width=32)] * 3,
)


def _made(kind):
    names = [field.name for field in dataclasses.fields(kind)]
    return st.tuples(st.just(kind), maybe(**{name: mostly(st.floats(0, 4)) for name in names}))


@generated(500, given_=st.sampled_from(RULES).flatmap(_made), pair=pairs)
def test_a_rule_takes_possible_settings_alone(given_, pair):
    kind, options = given_
    rule = attempt(lambda: kind(**options))
    if not refused(rule):
        weights = attempt(lambda: rule(*pair))
        assert torch.isfinite(weights).all()


def _sized(rows):
    return st.tuples(tensors(st.just((rows,))), tensors(st.just((rows, rows))) | st.none())


@generated(
    800,
    kind=st.sampled_from(RULES),
    given_=st.sampled_from([1, 2, 2, 3]).flatmap(_sized)
    | st.tuples(mostly(tensors()), mostly(tensors(), st.just(torch.eye(2)), st.none())),
)
def test_weights_have_the_losses_shape_and_trouble_stays_where_it_is(kind, given_):
    losses, gram = given_
    weights = attempt(lambda: kind()(losses, gram))
    if refused(weights):
        return
    assert (weights.shape, weights.dtype) == (losses.shape, losses.dtype)
    if weights.is_meta:  # a shape without numbers
        return
    sound = torch.isfinite(losses).all(-1)
    if gram is not None:
        sound = sound & torch.isfinite(gram).flatten(-2).all(-1)
    assert torch.isnan(weights[~sound]).all()
    assert not torch.isnan(weights[sound]).any()


fractions = st.floats(0, 1) | st.just(float("nan"))
square = st.sampled_from([1, 2, 3]).flatmap(
    lambda size: st.lists(
        st.lists(fractions, min_size=size, max_size=size), min_size=size, max_size=size
    )
)
METRICS = [metrics.average_accuracy, metrics.average_accuracy_over_tasks, metrics.forgetting]


@generated(400, metric=st.sampled_from(METRICS), matrix=mostly(square, tensors()))
def test_a_metric_of_accuracies_is_a_number_or_none(metric, matrix):
    value = attempt(lambda: metric(matrix))
    if not refused(value):
        known = value[~np.isnan(value)]
        assert ((known >= -1.001) & (known <= 1.001)).all()


@generated(
    250,
    curve=mostly(square, tensors()),
    more=st.lists(mostly(st.sampled_from(["mean", "trapezoid"])) | junk, max_size=2),
)
def test_the_area_under_a_curve_is_one_of_accuracies(curve, more):
    area = attempt(lambda: metrics.learning_curve_area(curve, *more))
    if not refused(area):
        known = area[~np.isnan(area)]
        assert ((known >= -0.001) & (known <= 1.001)).all()
