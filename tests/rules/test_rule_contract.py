"""What is promised of every rule."""

import dataclasses
import itertools
import math

import pytest
import torch
from rule_oracles import gram_of

from engram.errors import EngramError
from engram.rules import AGEM, GEM, MEGA1, MEGA2, Current, Equal, Rule

RULES = [
    Current(),
    Equal(),
    AGEM(),
    GEM(),
    GEM(margin=0.0, ridge=0.0),
    MEGA1(),
    MEGA1(test="reference"),
    MEGA2(),
    MEGA2(balance=False),
    MEGA2(max_angle=math.pi / 2),
]
ON_DEVICE = [rule for rule in RULES if not isinstance(rule, GEM)]
SEVERAL = [rule for rule in RULES if rule.reference != "pooled"]
LOSS_RATIO = [MEGA1(epsilon=0.0) if isinstance(rule, MEGA1) else rule for rule in RULES]

each_rule = pytest.mark.parametrize("rule", RULES, ids=repr)
each_device_rule = pytest.mark.parametrize("rule", ON_DEVICE, ids=repr)


def problems(*shape, rows=2, dtype=torch.float64, seed=0):
    """Random losses and Gram matrices with conflicts among them."""
    generator = torch.Generator().manual_seed(seed)
    losses = torch.rand(*shape, rows, dtype=dtype, generator=generator) + 0.01
    vectors = torch.randn(*shape, rows, 5, dtype=dtype, generator=generator)
    return losses, gram_of(vectors)


@each_rule
@pytest.mark.parametrize("leading", [(), (3,), (2, 0)])
def test_one_row_keeps_its_gradient(rule, leading):
    losses, gram = problems(*leading, rows=1)
    assert torch.equal(rule(losses, gram), torch.ones(*leading, 1, dtype=torch.float64))
    assert torch.equal(rule(losses), torch.ones(*leading, 1, dtype=torch.float64))


@each_rule
@pytest.mark.parametrize("losses_dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gram_dtype", [torch.float32, torch.float64])
def test_weights_have_the_shape_and_dtype_of_the_losses(rule, losses_dtype, gram_dtype):
    losses, gram = problems(4, 3)
    weights = rule(losses.to(losses_dtype), gram.to(gram_dtype))
    assert weights.shape == (4, 3, 2)
    assert weights.dtype == losses_dtype
    torch.testing.assert_close(weights.double(), rule(losses, gram), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("rule", "rows"), [*((rule, 2) for rule in RULES), *((rule, 5) for rule in SEVERAL)], ids=repr
)
def test_leading_dimensions_are_independent_problems(rule, rows):
    losses, gram = problems(3, 4, rows=rows)
    weights = rule(losses, gram)
    for index in itertools.product(range(3), range(4)):
        torch.testing.assert_close(weights[index], rule(losses[index], gram[index]))


@each_rule
def test_no_problem_at_all_is_no_trouble(rule):
    assert rule(*problems(2, 0)).shape == (2, 0, 2)


@each_device_rule
def test_nothing_is_read_back_to_the_host(rule):
    losses, gram = problems(6)
    # A tensor without data, or with a hidden batch dimension, cannot be read.
    assert rule(losses.to("meta"), gram.to("meta")).shape == (6, 2)
    torch.testing.assert_close(torch.func.vmap(rule)(losses, gram), rule(losses, gram))


@each_rule
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", ["current loss", "reference loss", "g.g", "g.r", "r.r"])
def test_non_finite_input_gives_nan_and_leaves_its_neighbours_alone(rule, bad, place):
    losses, gram = problems(3)
    expected = rule(losses, gram)
    where = {"current loss": 0, "reference loss": 1, "g.g": (0, 0), "r.r": (1, 1)}
    if place == "g.r":
        gram[1, 0, 1] = gram[1, 1, 0] = bad
    elif "loss" in place:
        losses[1, where[place]] = bad
    else:
        gram[1][where[place]] = bad
    weights = rule(losses, gram)
    assert weights[1].isnan().all()
    assert torch.equal(weights[[0, 2]], expected[[0, 2]])
    assert rule(losses[1], gram[1]).isnan().all()


@each_rule
def test_weights_carry_no_graph(rule):
    losses, gram = problems()
    weights = rule(losses.requires_grad_(), gram.requires_grad_())
    assert not weights.requires_grad


@each_rule
@pytest.mark.parametrize("scale", [1e-18, 1e-6, 1e3, 1e18])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_unit_of_the_gradients_does_not_matter(rule, scale, dtype):
    losses, gram = problems(20, dtype=dtype)
    scaled = (gram.double() * scale**2).to(dtype)
    torch.testing.assert_close(rule(losses, scaled), rule(losses, gram), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rule", LOSS_RATIO, ids=repr)
@pytest.mark.parametrize("scale", [1e-6, 1e3, 1e18])
def test_the_unit_of_the_losses_does_not_matter(rule, scale):
    losses, gram = problems(20)
    torch.testing.assert_close(rule(losses * scale, gram), rule(losses, gram))


@each_rule
def test_every_corner_has_finite_weights(rule):
    values = torch.tensor([0.0, 1e-18, 1e-10, 1e-3, 1.0, 1e18])
    lengths = torch.tensor([0.0, 1e-30, 1e-18, 1.0, 1e18], dtype=torch.float64)
    cosines = torch.tensor([-1.0, -0.5, 0.0, 1.0], dtype=torch.float64)
    losses = torch.cartesian_prod(values, values)
    g, r, cosine = torch.cartesian_prod(lengths, lengths, cosines).T
    product = g * r * cosine
    gram = torch.stack([g * g, product, product, r * r], -1).view(-1, 2, 2).float()
    losses, gram = losses[:, None].expand(-1, len(gram), -1), gram.expand(len(losses), -1, -1, -1)
    assert rule(losses, gram).isfinite().all()


@pytest.mark.parametrize("rule", [Current(), Equal(), AGEM(), GEM()], ids=repr)
def test_unified_view_the_older_rules_never_weigh_the_current_gradient(rule):
    weights = rule(*problems(100))
    assert torch.equal(weights[:, 0], torch.ones(100, dtype=torch.float64))


@pytest.mark.parametrize("rule", [MEGA1(), MEGA2()], ids=repr)
def test_unified_view_mega_weighs_both(rule):
    losses, gram = problems(2)
    losses[0, 0], losses[1, 0] = 1e-6, 10.0
    weights = rule(losses, gram)
    assert weights[0, 0] < 0.01 < 0.5 < weights[1, 0]
    assert weights[0, 1] != weights[1, 1]


@pytest.mark.parametrize("rule", [MEGA1(), MEGA1(test="reference"), MEGA2()], ids=repr)
def test_a_negative_loss_counts_as_zero(rule):
    losses = torch.tensor([[-0.5, 1.0], [1.0, -0.5], [-1.0, -1.0]])
    _, gram = problems(3, dtype=torch.float32)
    assert torch.equal(rule(losses, gram), rule(losses.clamp(min=0), gram))


def test_constant_rules():
    losses, gram = problems(7)
    assert torch.equal(Current()(losses, gram), torch.tensor([1.0, 0.0]).double().expand(7, 2))
    assert torch.equal(Equal()(losses), torch.ones(7, 2, dtype=torch.float64))


def test_what_the_rules_ask_for():
    asks = {type(rule).__name__: (rule.needs_gram, rule.reference) for rule in RULES}
    assert asks == {
        "Current": (False, "none"),
        "Equal": (False, "pooled"),
        "AGEM": (True, "pooled"),
        "GEM": (True, "per task"),
        "MEGA1": (False, "pooled"),
        "MEGA2": (True, "pooled"),
    }


@each_rule
def test_a_rule_is_a_readable_value(rule):
    assert isinstance(rule, Rule)
    assert rule == eval(repr(rule))
    assert len({rule, dataclasses.replace(rule)}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.margin = 1.0


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in SEVERAL], ids=repr)
def test_two_row_rules_refuse_more(rule):
    with pytest.raises(EngramError, match=r"at most 2 rows .* losses has 3\."):
        rule(*problems(rows=3))


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.needs_gram], ids=repr)
def test_a_missing_gram_is_refused(rule):
    with pytest.raises(EngramError, match=r"needs gram.*\[4, 2, 2\].*missing"):
        rule(torch.ones(4, 2))


@each_rule
@pytest.mark.parametrize(
    ("losses", "gram", "message"),
    [
        ([1.0, 2.0], None, "losses must be a tensor, not list"),
        (torch.ones(2), [[1.0]], "gram must be a tensor, not list"),
        (torch.ones(2, dtype=torch.int64), None, "losses must be float32 or float64, not torch.in"),
        (torch.ones(2), torch.ones(2, 2).half(), "gram must be float32 or float64, not torch.flo"),
        (torch.tensor(1.0), None, r"losses must have the shape .* not \[\]"),
        (torch.ones(3, 0), None, r"losses must have the shape .* not \[3, 0\]"),
        (
            torch.ones(3, 2),
            torch.ones(2, 2),
            r"gram must have the shape \[3, 2, 2\].* not \[2, 2\]",
        ),
        (torch.ones(2), torch.ones(2, 1), r"gram must have the shape \[2, 2\].* not \[2, 1\]"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(rule, losses, gram, message):
    with pytest.raises(EngramError, match=message):
        rule(losses, gram)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GEM(margin=-0.1), "margin must be .* not -0.1"),
        (lambda: GEM(ridge=math.nan), "ridge must be .* not nan"),
        (lambda: MEGA1(epsilon=-1e-9), "epsilon must be .* not -1e-09"),
        (lambda: MEGA1(epsilon=math.inf), "epsilon must be .* not inf"),
        (lambda: MEGA1(test="currant"), "MEGA1 test 'currant'.*'current'"),
        (lambda: MEGA2(max_angle=3.2), "max_angle must be .* from 0 to 3.14.* not 3.2"),
        (lambda: MEGA2(max_angle=-1.0), "max_angle must be .* not -1.0"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(EngramError, match=message):
        make()
