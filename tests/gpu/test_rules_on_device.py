"""On a GPU: a pair rule is one kernel, and its weights are those of the operations it replaces."""

import math

import pytest
import torch

from engram.rules import AGEM, MEGA1, MEGA2, Rule

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

RULES = [
    AGEM(),
    MEGA1(),
    MEGA1(test="reference"),
    MEGA2(),
    MEGA2(balance=False),
    MEGA2(max_angle=math.pi / 2),
    MEGA2(least_area=1e-10),
]
each_rule = pytest.mark.parametrize("rule", RULES, ids=repr)
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def problems(count, dtype=torch.float32):
    source = torch.Generator().manual_seed(0)
    losses = torch.rand(count, 2, generator=source, dtype=torch.float64) + 0.01
    rows = torch.randn(count, 2, 5, generator=source, dtype=torch.float64)
    return losses.to("cuda", dtype), (rows @ rows.mT).to("cuda", dtype)


@each_rule
@each_dtype
@pytest.mark.parametrize("count", [1, 5, 64, 1000])
def test_the_kernel_gives_the_weights_of_the_operations(rule, dtype, count):
    losses, gram = problems(count, dtype)
    bound = 1000 * torch.finfo(dtype).eps  # some problems blow rounding up
    plain = Rule._weigh_and_mark(rule, losses, gram)
    torch.testing.assert_close(rule(losses, gram), plain, rtol=bound, atol=bound)
    here = rule(losses.cpu(), gram.cpu())
    torch.testing.assert_close(rule(losses, gram).cpu(), here, rtol=bound, atol=bound)
    if not rule.needs_gram:
        assert torch.equal(rule(losses), rule(losses, gram))


@each_rule
@pytest.mark.parametrize("gram_dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("losses_dtype", [torch.float32, torch.float64])
def test_dtypes_may_differ(rule, losses_dtype, gram_dtype):
    losses, gram = problems(7)
    weights = rule(losses.to(losses_dtype), gram.to(gram_dtype))
    assert weights.dtype == losses_dtype
    torch.testing.assert_close(weights.float(), rule(losses, gram), rtol=1e-4, atol=1e-4)


@each_rule
@each_dtype
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", range(6))
def test_trouble_stays_visible_and_at_home(rule, dtype, bad, place):
    losses, gram = problems(3, dtype)
    expected = rule(losses, gram)
    if place < 2:
        losses[1, place] = bad
    else:
        gram[1].view(-1)[place - 2] = bad
    weights = rule(losses, gram)
    assert weights[1].isnan().all()
    assert torch.equal(weights[[0, 2]], expected[[0, 2]])


@each_rule
def test_zeros_and_shapes(rule):
    losses, gram = problems(6)
    assert torch.equal(
        rule(losses.view(2, 3, 2), gram.view(2, 3, 2, 2)).flatten(0, 1), rule(losses, gram)
    )
    assert torch.equal(rule(losses[4], gram[4]), rule(losses, gram)[4])
    assert rule(losses[:0], gram[:0]).shape == (0, 2)
    zeros = rule(torch.zeros_like(losses), torch.zeros_like(gram))
    assert torch.equal(zeros.cpu(), rule(torch.zeros(6, 2), torch.zeros(6, 2, 2)))


@each_rule
def test_a_call_is_captured_once_it_has_been_made(rule):
    losses, gram = problems(5)
    expected = rule(losses, gram).clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        weights = rule(losses, gram)
    weights.zero_()
    graph.replay()
    assert torch.equal(weights, expected)
    losses.copy_(losses.flip(0))
    gram.copy_(gram.flip(0))
    graph.replay()
    assert torch.equal(weights, expected.flip(0))


@each_rule
def test_a_hidden_batch_dimension_is_no_trouble(rule):
    losses, gram = problems(5)
    torch.testing.assert_close(
        torch.func.vmap(rule)(losses, gram), rule(losses, gram), rtol=1e-4, atol=1e-4
    )
