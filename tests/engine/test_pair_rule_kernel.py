"""The kernel of A-GEM, MEGA-I and MEGA-II, played through by Triton's interpreter."""

import itertools
import math

import pytest
import torch

from engram.rules import AGEM, MEGA1, MEGA2, pair

RULES = [
    AGEM(),
    MEGA1(),
    MEGA1(epsilon=0.0),
    MEGA1(test="reference"),
    MEGA2(),
    MEGA2(balance=False),
    MEGA2(max_angle=math.pi / 2),
    MEGA2(max_angle=0.0),
    MEGA2(max_angle=2.5, balance=False),
    MEGA2(least_area=1e-10),
    MEGA2(balance=False, max_angle=math.pi / 2, least_area=1e-10),
]
G_ALONE = torch.tensor([1.0, 0.0])
each_rule = pytest.mark.parametrize("rule", RULES, ids=repr)
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


@pytest.fixture
def kernels(interpreted, monkeypatch):
    """Return a function that gives a rule's weights by the kernel."""
    interpreted("engram.kernels.rules")

    def weigh(rule, losses, gram=None):
        with monkeypatch.context() as patch:
            patch.setattr(pair, "triton_works", lambda *_: True)
            return rule(losses, gram)

    return weigh


def problems(dtype):
    """Losses [N, 2] and Gram matrices [N, 2, 2]: random ones, and every corner there is."""
    source = torch.Generator().manual_seed(0)
    losses = torch.rand(300, 2, dtype=torch.float64, generator=source).exp2_() - 1.05
    rows = torch.randn(300, 2, 3, dtype=torch.float64, generator=source)
    values = torch.tensor([-0.5, 0.0, 1e-10, 1e-3, 1.0, 1e18], dtype=torch.float64)
    lengths = torch.tensor([0.0, 1e-30, 1e-5, 1.0, 1e15], dtype=torch.float64)
    cosines = torch.tensor([-1.0, -0.5, 0.0, 1.0], dtype=torch.float64)
    g, r, cosine = torch.cartesian_prod(lengths, lengths, cosines).T
    corners = torch.stack([g * g, g * r * cosine, g * r * cosine, r * r], -1).view(-1, 2, 2)
    pairs = torch.cartesian_prod(values, values)
    places = torch.cartesian_prod(torch.arange(len(pairs)), torch.arange(len(corners)))
    losses = torch.cat([losses, pairs[places[:, 0]]])
    return losses.to(dtype), torch.cat([rows @ rows.mT, corners[places[:, 1]]]).to(dtype)


def square(weights, gram):
    """Return the square of the mixture, |w₀ g + w₁ r|², in float64."""
    weights, gram = weights.double().expand(gram.shape[:-1]), gram.double()
    return torch.einsum("...i,...ij,...j->...", weights, gram, weights).clamp(min=0)


@each_rule
@each_dtype
def test_it_gives_the_weights_of_the_operations(kernels, rule, dtype):
    losses, gram = problems(dtype)
    found, expected = kernels(rule, losses, gram), rule(losses, gram)
    bound = 1000 * torch.finfo(dtype).eps
    same = torch.isclose(found, expected, rtol=bound, atol=bound).all(-1)
    # Between parallel gradients the weights may jump where their mixture does not, whose square
    # is known to the precision of the Gram matrix.
    apart = square(found - expected, gram)
    assert (same | (apart <= bound * (square(expected, gram) + square(G_ALONE, gram)))).all()
    assert same[:300].all()
    if not rule.needs_gram:
        assert torch.equal(kernels(rule, losses), kernels(rule, losses, gram))


@each_rule
@pytest.mark.parametrize("gram_dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("losses_dtype", [torch.float32, torch.float64])
def test_dtypes_may_differ(kernels, rule, losses_dtype, gram_dtype):
    losses, gram = (part[:300] for part in problems(torch.float32))
    losses, gram = losses.to(losses_dtype), gram.to(gram_dtype)
    weights = kernels(rule, losses, gram)
    assert weights.dtype == losses_dtype
    torch.testing.assert_close(weights, rule(losses, gram), rtol=1e-3, atol=1e-3)


@each_rule
@each_dtype
def test_trouble_stays_visible_and_at_home(kernels, rule, dtype):
    losses, gram = (part[:20].clone() for part in problems(dtype))
    expected = kernels(rule, losses, gram)
    places = itertools.product(range(6), [math.nan, math.inf, -math.inf])
    for number, (place, bad) in enumerate(places):
        if place < 2:
            losses[number, place] = bad
        else:
            gram[number].view(-1)[place - 2] = bad
    weights = kernels(rule, losses, gram)
    assert weights[:18].isnan().all()
    assert torch.equal(weights[18:], expected[18:])


@each_rule
def test_any_leading_dimensions(kernels, rule):
    losses, gram = (part[:300] for part in problems(torch.float64))
    whole = kernels(rule, losses, gram)
    split = kernels(rule, losses.view(3, 100, 2), gram.view(3, 100, 2, 2))
    assert torch.equal(split.view(300, 2), whole)
    assert torch.equal(kernels(rule, losses[7], gram[7]), whole[7])
    assert kernels(rule, losses[:0], gram[:0]).shape == (0, 2)


def test_a_rule_without_a_kernel_is_weighed_by_operations(kernels):
    class Mine(pair.PairRule):
        needs_gram, reference = False, "pooled"

        def weigh_pair(self, losses, products, precision):  # noqa: ARG002
            return 2 * losses[0], losses[1]

    losses, _ = problems(torch.float32)
    assert torch.equal(kernels(Mine(), losses), losses * torch.tensor([2.0, 1.0]))
