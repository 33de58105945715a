"""Kinds of targets against formulas written out by hand, in float64."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from engram.errors import EngramError
from engram.lab.targets import Classes, Labels, Numbers
from engram.metrics import forgetting

pytestmark = pytest.mark.numerical

CLASSES = Classes(("a", "b", "c", "d"))
LABELS = Labels(("x", "y", "z"))
NUMBERS = Numbers(("height", "weight"), (170.0, 70.0), (10.0, 5.0))


def drawn(target, seed=0, shape=(2, 30)):
    """Return outputs and targets of R runs, as float64."""
    source = torch.Generator().manual_seed(seed)
    outputs = torch.randn(*shape, target.outputs, dtype=torch.float64, generator=source)
    if target.kind == "classes":
        return outputs, torch.randint(target.outputs, shape, generator=source)
    if target.kind == "labels":
        return outputs, torch.randint(2, outputs.shape, generator=source).double()
    noise = torch.randn(outputs.shape, dtype=torch.float64, generator=source)
    means, scales = torch.tensor(target.means), torch.tensor(target.scales)
    return outputs, (outputs + noise) * scales.double() + means.double()


def totals(target, outputs, targets, allowed=None):
    return target.statistics(outputs, targets, allowed).sum(-2)


def test_the_loss_of_classes_is_torch_s_cross_entropy():
    outputs, targets = drawn(CLASSES)
    wanted = nn.CrossEntropyLoss(reduction="none")(outputs.flatten(0, 1), targets.flatten())
    torch.testing.assert_close(CLASSES.losses(outputs, targets), wanted.view(2, 30))


def test_the_loss_of_labels_is_torch_s_mean_over_labels():
    outputs, targets = drawn(LABELS)
    each = nn.BCEWithLogitsLoss(reduction="none")(outputs, targets)
    torch.testing.assert_close(LABELS.losses(outputs, targets), each.mean(-1))


def test_the_loss_of_numbers_is_the_squared_error_in_units_of_scale():
    outputs, targets = drawn(NUMBERS)
    out, true = outputs.numpy(), targets.numpy()
    height = (out[..., 0] - (true[..., 0] - 170) / 10) ** 2
    weight = (out[..., 1] - (true[..., 1] - 70) / 5) ** 2
    np.testing.assert_allclose(NUMBERS.losses(outputs, targets), (height + weight) / 2)


@pytest.mark.parametrize("target", [CLASSES, LABELS, NUMBERS], ids=lambda each: each.kind)
def test_slopes_are_what_autograd_finds(target):
    outputs, targets = drawn(target)
    outputs.requires_grad_()
    (wanted,) = torch.autograd.grad(target.losses(outputs, targets).sum(), outputs)
    torch.testing.assert_close(target.slopes(outputs.detach(), targets), wanted)


def test_a_class_that_is_not_allowed_is_no_answer_and_learns_nothing():
    outputs, _ = drawn(CLASSES)
    targets = torch.zeros(2, 30, dtype=torch.int64)
    allowed = torch.tensor([True, False, True, False]).expand(2, 30, 4)
    two = Classes(("a", "c"))
    kept = outputs[..., [0, 2]]
    torch.testing.assert_close(CLASSES.losses(outputs, targets, allowed), two.losses(kept, targets))
    assert (CLASSES.slopes(outputs, targets, allowed)[..., [1, 3]] == 0).all()
    assert (CLASSES.probabilities(outputs, allowed)[..., [1, 3]] == 0).all()
    assert not CLASSES.predictions(outputs, allowed).remainder(2).any()
    found = CLASSES.metric(totals(CLASSES, outputs, targets, allowed))
    assert found.tolist() == [(kept[run].argmax(-1) == 0).double().mean() for run in range(2)]


@pytest.mark.parametrize("target", [LABELS, NUMBERS], ids=lambda each: each.kind)
def test_only_classes_exclude_one_another(target):
    outputs, targets = drawn(target)
    with pytest.raises(EngramError, match="allowed must be None"):
        target.losses(outputs, targets, torch.ones_like(outputs, dtype=torch.bool))


def test_f1_is_counted_by_hand():
    said = np.array([[1, 1, 0], [0, 1, 0], [1, 0, 0], [0, 0, 0]])
    true = np.array([[1, 0, 0], [0, 1, 1], [1, 0, 0], [0, 0, 0]])
    outputs = torch.from_numpy(np.where(said, 2.0, -2.0))
    summary = LABELS.summary(totals(LABELS, outputs, torch.from_numpy(true).double()))
    right, wrong, missed = 3, 1, 1
    assert summary["precision"] == right / (right + wrong)
    assert summary["recall"] == right / (right + missed)
    assert summary["f1"] == pytest.approx(2 * right / (2 * right + wrong + missed))
    assert summary["exact_match"] == 2 / 4


def test_f1_of_no_labels_found_where_there_are_none_is_1():
    outputs = -torch.ones(5, 3)
    assert LABELS.metric(totals(LABELS, outputs, torch.zeros(5, 3))) == 1
    assert LABELS.metric(totals(LABELS, -outputs, torch.zeros(5, 3))) == 0


def test_r2_rmse_and_mae_are_those_of_the_textbook():
    outputs, targets = drawn(NUMBERS)
    answers = outputs.numpy() * [10.0, 5.0] + [170.0, 70.0]
    for run in range(2):
        error = targets[run].numpy() - answers[run]
        spread = targets[run].numpy() - targets[run].numpy().mean(0)
        r2 = (1 - (error**2).sum(0) / (spread**2).sum(0)).mean()
        summary = NUMBERS.summary(totals(NUMBERS, outputs[run], targets[run]))
        assert summary["r2"] == pytest.approx(r2, rel=1e-12)
        assert summary["rmse"] == pytest.approx(np.sqrt((error**2).mean(0)).mean(), rel=1e-12)
        assert summary["mae"] == pytest.approx(np.abs(error).mean(), rel=1e-12)
    np.testing.assert_allclose(NUMBERS.predictions(outputs), answers)


def test_r2_of_targets_that_are_all_equal_is_1_without_an_error_and_else_0():
    one = Numbers(("a",), (0.1,), (0.3,))
    targets = torch.full((7, 1), 0.7, dtype=torch.float64)
    exact = one.scaled(targets)
    assert one.metric(totals(one, exact, targets)) == 1
    assert one.metric(totals(one, exact + 1, targets)) == 0


def test_r2_can_be_negative_and_its_score_is_then_0():
    one = Numbers(("a",))
    targets = torch.tensor([[0.0], [2.0]])
    total = totals(one, torch.tensor([[5.0], [5.0]]), targets)
    assert one.metric(total) == 1 - (25 + 9) / 2
    assert one.score(total) == 0
    assert one.lowest == -math.inf


def test_r2_far_from_zero_is_not_lost_in_rounding():
    one = Numbers(("time",), (0.0,), (1.0,))
    targets = 1e6 + torch.arange(5, dtype=torch.float64).unsqueeze(-1)
    total = totals(one, targets + 0.1, targets)
    assert float(one.metric(total)) == pytest.approx(1 - 5 * 0.01 / 10, rel=1e-3)


@pytest.mark.parametrize("target", [CLASSES, LABELS, NUMBERS], ids=lambda each: each.kind)
def test_batches_add_up_and_runs_are_apart(target):
    outputs, targets = drawn(target)
    whole = target.metric(totals(target, outputs, targets))
    parts = [slice(0, 7), slice(7, 30)]
    added = sum(totals(target, outputs[:, part], targets[:, part]) for part in parts)
    torch.testing.assert_close(target.metric(added), whole)
    alone = [target.metric(totals(target, outputs[run], targets[run])) for run in range(2)]
    torch.testing.assert_close(torch.stack(alone), whole)
    assert whole.dtype == torch.float64
    assert (whole <= 1).all()
    assert (whole >= target.lowest).all()


@pytest.mark.parametrize("target", [CLASSES, LABELS, NUMBERS], ids=lambda each: each.kind)
def test_a_perfect_model_has_the_metric_1_and_of_nothing_there_is_none(target):
    _, targets = drawn(target)
    perfect = {
        "classes": lambda: nn.functional.one_hot(targets, 4).double(),
        "labels": lambda: 2 * targets - 1,
        "numbers": lambda: target.scaled(targets),
    }[target.kind]()
    assert target.metric(totals(target, perfect, targets)).tolist() == [1, 1]
    assert target.metric(totals(target, perfect[:, :0], targets[:, :0])).isnan().all()


def test_forgetting_is_of_scores():
    """The best score so far less the one at the end: 0.9 - 0.6 of R², 0.9 - 0 where it is lost."""
    assert forgetting([[0.9, math.nan], [0.6, 0.8]]) == pytest.approx(0.3)
    lost = max(0.0, -3.0)
    assert forgetting([[0.9, math.nan], [lost, 0.8]]) == pytest.approx(0.9)


def test_fitted_numbers_have_the_mean_and_deviation_of_their_columns():
    values = np.random.default_rng(0).normal(5, 3, (40, 2))
    values[:, 1] = 0.1
    found = Numbers.fitted(("a", "b"), torch.from_numpy(values))
    assert found.means == pytest.approx((values[:, 0].mean(), 0.1), rel=1e-12)
    assert found.scales == pytest.approx((values[:, 0].std(), 1.0), rel=1e-12)


@pytest.mark.parametrize(
    ("target", "values", "said"),
    [
        (CLASSES, torch.tensor([0, 4]), "from 0 to 3, and that of example 2 is 4"),
        (CLASSES, torch.tensor([-1]), "from 0 to 3, and that of example 1 is -1"),
        (CLASSES, torch.tensor([0.5]), "whole numbers, not torch.float32"),
        (CLASSES, [0, 1], "must be a tensor"),
        (LABELS, torch.tensor([[0, 1, 0], [0, 2, 0]]), "those of example 2 one is 2"),
        (LABELS, torch.tensor([[0.0, math.nan, 1.0]]), "those of example 1 one is nan"),
        (LABELS, torch.zeros(4), "3 labels for each example"),
        (NUMBERS, torch.tensor([[1.0, 2.0], [1.0, math.nan]]), "those of example 2 one is nan"),
        (NUMBERS, torch.tensor([[math.inf, 2.0]]), "those of example 1 one is inf"),
        (NUMBERS, torch.tensor([[1e31, 2.0]]), "at most 1e30"),
        (NUMBERS, torch.zeros(4, 3), "2 numbers for each example"),
        (NUMBERS, torch.zeros(4, 2, dtype=torch.complex64), "real numbers"),
    ],
)
def test_targets_that_cannot_be_learned_are_refused_by_their_place(target, values, said):
    with pytest.raises(EngramError, match=said):
        target.check(values)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Classes(("one",)), "2 classes or more"),
        (lambda: Classes("ab"), "must be texts"),
        (lambda: Labels(("a", "a")), "'a' is twice"),
        (lambda: Labels(()), "1 labels or more"),
        (lambda: Numbers(("a",), (math.nan,)), "means must be finite"),
        (lambda: Numbers(("a",), (0.0,), (0.0,)), "scales must be finite and above 0"),
        (lambda: Numbers(("a", "b"), (0.0,)), "one for each of the 2 numbers"),
        (lambda: Numbers.fitted(("a",), torch.empty(0, 1)), "one example or more"),
    ],
)
def test_targets_that_are_none_are_refused(make, said):
    with pytest.raises(EngramError, match=said):
        make()


def test_checked_targets_keep_what_they_say():
    assert CLASSES.check(torch.tensor([3, 0], dtype=torch.uint8)).dtype == torch.int64
    assert LABELS.check(torch.tensor([[True, False, True]])).tolist() == [[1, 0, 1]]
    whole = torch.tensor([[1_700_000_001, 1]])
    assert NUMBERS.check(whole).tolist() == [[1_700_000_001, 1]]
