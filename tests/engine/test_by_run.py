"""Numbers and rules in which the runs of a stack differ."""

import pytest
import torch

from engram.errors import EngramError
from engram.lab.engine import Rows, RuleByRun
from engram.lab.engine import rows as engine_rows
from engram.lab.networks import MLP
from engram.rules import AGEM, GEM, MEGA1, MEGA2

RATES = torch.tensor([[0.5], [0.1], [0.0], [2.0]])


def rows_of(count, length=900):
    return torch.randn(4, count, length), torch.rand(4, count), torch.randn(4, length)


def stepped(parameters, rows, weights):
    """In float64, a run after the other."""
    return torch.stack(
        [
            start - rate * sum(share * row for share, row in zip(shares, own, strict=True))
            for start, rate, shares, own in zip(
                parameters.double(),
                RATES[:, 0].double(),
                weights.double(),
                rows.double(),
                strict=True,
            )
        ]
    )


@pytest.mark.parametrize("count", [1, 2, 3, 17])
def test_a_step_along_the_mixture_has_every_run_s_own_rate(count):
    rows, weights, parameters = rows_of(count)
    exact = stepped(parameters, rows, weights)
    engine_rows.descend_along(parameters, rows, weights, RATES)
    torch.testing.assert_close(parameters.double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [2, 17])
def test_kernels_take_the_rate_from_the_weights(interpreted, count, monkeypatch):
    interpreted("engram.kernels.rows")
    monkeypatch.setattr(engine_rows, "triton_works", lambda _: True)
    rows, weights, parameters = rows_of(count)
    exact = stepped(parameters, rows, weights)
    engine_rows.descend_along(parameters, rows, weights, RATES)
    torch.testing.assert_close(parameters.double(), exact, rtol=1e-5, atol=1e-5)


def test_a_plain_step_has_every_run_s_own_rate():
    network = MLP((3, 2))
    parameters, update = torch.randn(4, network.size), torch.randn(4, network.size)
    exact = stepped(parameters, update.unsqueeze(1), torch.ones(4, 1))
    Rows(network, parameters).descend(update, RATES)
    torch.testing.assert_close(parameters.double(), exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "rules",
    [
        [MEGA1(0.1), MEGA1(0.1), MEGA1(5.0), MEGA1(0.1)],
        [MEGA2(), MEGA2(max_angle=0.1), MEGA2(least_area=1e9), MEGA2(False)],
        [GEM(0.0), GEM(0.5), GEM(2.0), GEM(0.5, 1.0)],
    ],
)
def test_every_run_is_weighed_by_its_own_rule(rules):
    count = 5 if isinstance(rules[0], GEM) else 2
    rows = torch.randn(4, count, 20)
    gram = rows @ rows.mT if rules[0].needs_gram else None
    losses = torch.rand(4, count)
    losses[1, 0] = torch.nan
    by_run = RuleByRun(rules)
    assert (by_run.needs_gram, by_run.reference) == (rules[0].needs_gram, rules[0].reference)
    weights = by_run(losses, gram)
    assert (weights.dtype, weights[1].isnan().all().item()) == (losses.dtype, True)
    for run, rule in enumerate(rules):
        alone = rule(losses[run : run + 1], None if gram is None else gram[run : run + 1])
        torch.testing.assert_close(weights[run : run + 1], alone, equal_nan=True)
        assert by_run.of(run) == rule
    one = by_run(losses[:, :1], None if gram is None else gram[:, :1, :1])  # nothing is remembered
    assert one.nan_to_num(1).tolist() == [[1.0]] * 4


def test_losses_of_other_runs_are_refused():
    rule = RuleByRun([MEGA1(0.1), MEGA1(0.2)])
    for shape in ([2], [3, 2], [1, 2, 2]):
        with pytest.raises(EngramError, match=r"losses must have the shape \[2, rows\]"):
            rule(torch.ones(shape))
    with pytest.raises(EngramError, match="needs gram"):
        RuleByRun([AGEM(), AGEM()])(torch.ones(2, 2))
