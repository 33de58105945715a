"""On a GPU: GEM's programs have the CPU's answers, in a captured step too, and nothing waits."""

import pytest
import torch

from engram.rules import GEM

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

RULES = [GEM(), GEM(0.0, 1e-3), GEM(0.0, 0.0)]
SIZES = [(1, 1), (5, 4), (5, 15), (5, 16), (20, 2), (3, 31), (3, 32), (2, 63), (64, 69)]
each_rule = pytest.mark.parametrize("rule", RULES, ids=repr)
each_size = pytest.mark.parametrize(("runs", "tasks"), SIZES)


def problems(runs, tasks, *, seed=0, dtype=torch.float32):
    """Losses and dot products on the CPU: most references oppose the current gradient."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(runs, tasks + 1, 1000, dtype=torch.float64, generator=generator)
    rows[:, 1:] -= 0.2 * rows[:, :1]
    return torch.ones(runs, tasks + 1, dtype=dtype), (rows @ rows.mT).to(dtype)


@each_rule
@each_size
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gpu_has_the_answers_of_the_cpu(rule, runs, tasks, dtype):
    losses, gram = problems(runs, tasks, dtype=dtype)
    weights = rule(losses.cuda(), gram.cuda())
    assert weights.is_cuda
    assert weights.dtype == dtype
    torch.testing.assert_close(weights.cpu(), rule(losses, gram))


@each_rule
def test_trouble_and_calm_stay_where_they_are(rule):
    losses, gram = problems(6, 16)
    gram[1] = torch.eye(17)
    gram[2, 3, 3] = torch.nan
    gram[3, 5] = gram[3, :, 5] = 0.0
    gram[4, 1:, 1:] = 1.0  # all of them parallel
    weights = rule(losses.cuda(), gram.cuda()).cpu()
    torch.testing.assert_close(weights, rule(losses, gram), equal_nan=True)
    assert weights.isnan().any(-1).nonzero().tolist() == [[2]]
    assert weights[1].tolist() == [1.0] + [0.0] * 16


@each_rule
@each_size
def test_nothing_waits_for_the_host(rule, runs, tasks):
    losses, gram = (tensor.cuda() for tensor in problems(runs, tasks))
    torch.cuda.set_sync_debug_mode("error")
    try:
        rule(losses, gram)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@each_rule
@each_size
def test_a_captured_call_answers_for_new_numbers(rule, runs, tasks):
    losses, gram = (tensor.cuda() for tensor in problems(runs, tasks))
    rule(losses, gram)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        weights = rule(losses, gram)
    for seed in range(3):
        new = problems(runs, tasks, seed=seed)[1]
        gram.copy_(new)
        graph.replay()
        torch.testing.assert_close(weights.cpu(), rule(losses.cpu(), new))
