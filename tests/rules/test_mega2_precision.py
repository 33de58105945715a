"""MEGA-II next to its singular point: opposite gradients and equal losses.

The update is formed in float64 from the vectors themselves, so that nothing but the rule's own
weights can spoil its length.
"""

import itertools
import math

import pytest
import torch
from rule_oracles import gram_of, pair

from engram.rules import MEGA2

OPENINGS = [digit * 10.0**power for power in range(-8, 0) for digit in (1, 3)] + [0.0]
RATIOS = [1.0, 1e-3, 1e3] + [1 + sign * 10.0**power for power in range(-7, 0) for sign in (-1, 1)]
RULES = [MEGA2(), MEGA2(balance=False), MEGA2(max_angle=math.pi / 2), MEGA2(max_angle=3.0)]

PROMISED = {torch.float32: 1e-3, torch.float64: 1e-6}
NEVER_GIVES_UP = {torch.float32: 0.03, torch.float64: 3e-4}  # |l_t ĝ + l_ref r̂|, losses' sum 1


def gram_computed(rows, dtype):
    rows = rows.to(dtype)
    return rows.double(), gram_of(rows)


def gram_rounded(rows, dtype):
    return rows, gram_of(rows).to(dtype)


each_case = pytest.mark.parametrize(
    ("dtype", "measure", "dimensions"),
    [
        *itertools.product([torch.float32, torch.float64], [gram_computed, gram_rounded], [2, 50]),
        (torch.float32, gram_computed, 100_000),
    ],
)


def cases(measure, dtype, dimensions):
    """Every opening with every ratio of the losses: true rows, losses, Gram matrices."""
    for seed, opening in enumerate(OPENINGS):
        rows = pair(opening, dimensions=dimensions, lengths=(0.2, 3.0), seed=seed)
        rows, gram = measure(rows, dtype)
        losses = torch.tensor([[0.37 * ratio, 0.37] for ratio in RATIOS], dtype=dtype)
        yield rows, losses, gram.expand(len(losses), 2, 2)


@each_case
@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_the_update_keeps_its_length(rule, dtype, measure, dimensions):
    for rows, losses, gram in cases(measure, dtype, dimensions):
        updates = rule(losses, gram).double() @ rows
        change = updates.norm(dim=-1) / rows[0].norm() - 1
        assert change.abs().max() < PROMISED[dtype]


@each_case
def test_the_update_has_the_best_direction_wherever_that_is_resolved(dtype, measure, dimensions):
    resolved = 0
    for rows, losses, gram in cases(measure, dtype, dimensions):
        updates = MEGA2()(losses, gram).double() @ rows
        shares = losses.double() / losses.double().sum(-1, keepdim=True)
        best = shares @ (rows / rows.norm(dim=-1, keepdim=True))
        length = best.norm(dim=-1, keepdim=True)
        error = (updates / rows[0].norm() - best / length).norm(dim=-1)
        clear = length[:, 0] > NEVER_GIVES_UP[dtype]
        resolved += int(clear.sum())
        assert (error[clear] < 2 * PROMISED[dtype]).all()
    assert resolved > len(OPENINGS) * len(RATIOS) / 4


def test_a_wider_gram_matrix_is_made_use_of():
    """Half a degree from opposite: lost on a float32 Gram matrix, not on a float64 one."""
    rows = pair(math.radians(0.5))
    losses = torch.tensor([1.0, 1.0])
    assert MEGA2()(losses, gram_of(rows).float()).tolist() == [1.0, 0.0]
    weights = MEGA2()(losses, gram_of(rows))
    assert weights.dtype == torch.float32
    assert (weights.double() @ rows).norm() == pytest.approx(1.0, abs=1e-3)
    assert (weights.double() @ rows @ rows[0]).item() == pytest.approx(0.0, abs=0.01)


def test_wider_losses_do_not_make_a_float32_gram_matrix_better():
    rows, gram = gram_computed(pair(1e-3), torch.float32)
    weights = MEGA2()(torch.tensor([1.0, 1.0], dtype=torch.float64), gram)
    assert (weights @ rows).norm() == pytest.approx(1.0, abs=1e-3)
