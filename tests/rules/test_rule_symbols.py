"""Symbols give the weights that plain numbers and tensors give: one formula, made into a kernel."""

import itertools
import math
import operator

import numpy as np
import pytest
import torch
from compiled_rules import CompiledKernels
from rule_oracles import gram_of

from engram.kernels import takes_kernels
from engram.rules import AGEM, MEGA1, MEGA2, _kernel, _pair
from engram.rules._kernel import kernel_source
from engram.rules._symbol import Symbol

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
RANDOM = 500  # problems
FLOATS = [torch.float32, torch.float64]
each_rule = pytest.mark.parametrize("rule", RULES, ids=repr)

OPERATIONS = {
    "{} + {}": operator.add,
    "{} - {}": operator.sub,
    "{} * {}": operator.mul,
    "{} / {}": operator.truediv,
    "{} < {}": operator.lt,
    "{} <= {}": operator.le,
    "{} > {}": operator.gt,
    "{} >= {}": operator.ge,
    "{} && {}": operator.and_,
    "-{}": operator.neg,
    "sqrt({})": np.sqrt,
    "{} ? {} : {}": np.where,
}


def evaluate(symbol, known):
    """What a symbol stands for, where the inputs are known: arrays of one shape and dtype."""
    if not isinstance(symbol, Symbol):
        return next(iter(known.values())).dtype.type(symbol)
    if not symbol.operands:
        return known[symbol.form]
    return OPERATIONS[symbol.form](*(evaluate(part, known) for part in symbol.operands))


def evaluated(rule, losses, gram, precision):
    """The weights [N, 2] by the rule's formula of symbols; numpy rounds as the standard has it."""
    names = ("current", "reference", "gg", "gr", "rr")
    inputs = [Symbol(name) for name in names]
    weights = rule._weigh_pair(tuple(inputs[:2]), tuple(inputs[2:]), precision)
    numbers = (*losses.T.numpy(), *gram.flatten(1)[:, [0, 1, 3]].T.numpy())
    known = dict(zip(names, numbers, strict=True))
    with np.errstate(all="ignore"):
        return np.stack([evaluate(weight, known) for weight in weights], -1)


def problems(dtype=torch.float64):
    """Random losses [N, 2] and Gram matrices [N, 2, 2], and every corner there is."""
    source = torch.Generator().manual_seed(0)
    losses = torch.rand(RANDOM, 2, dtype=torch.float64, generator=source).exp2_() - 1.05
    rows = torch.randn(RANDOM, 2, 3, dtype=torch.float64, generator=source)
    values = torch.tensor([-0.5, 0.0, 1e-18, 1e-10, 1e-3, 1.0, 1e18], dtype=torch.float64)
    lengths = torch.tensor([0.0, 1e-30, 1e-5, 1.0, 1e18], dtype=torch.float64)
    cosines = torch.tensor([-1.0, -0.9999, -0.5, 0.0, 1.0], dtype=torch.float64)
    g, r, cosine = torch.cartesian_prod(lengths, lengths, cosines).T
    corners = torch.stack([g * g, g * r * cosine, g * r * cosine, r * r], -1).view(-1, 2, 2)
    pairs = torch.cartesian_prod(values, values)
    places = torch.cartesian_prod(torch.arange(len(pairs)), torch.arange(len(corners)))
    losses = torch.cat([losses, pairs[places[:, 0]]])
    return losses.to(dtype), torch.cat([gram_of(rows), corners[places[:, 1]]]).to(dtype)


def troubled(dtype=torch.float64):
    """A problem after the other with one number in it that is not finite."""
    losses, gram = (part[:18].clone() for part in problems(dtype))
    places = itertools.product(range(6), [math.nan, math.inf, -math.inf])
    for number, (place, bad) in enumerate(places):
        if place < 2:
            losses[number, place] = bad
        else:
            gram[number].view(-1)[place - 2] = bad
    return losses, gram


@each_rule
def test_symbols_stand_for_what_the_formula_does_with_numbers(rule):
    losses, gram = problems()
    precision = torch.finfo(torch.float64)
    expected = [
        rule.weigh_numbers(pair, matrix, precision)
        for pair, matrix in zip(losses.tolist(), gram.tolist(), strict=True)
    ]
    assert np.array_equal(evaluated(rule, losses, gram, precision), expected)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """All kernels, compiled for the host; skipped without a compiler."""
    variants = itertools.product(RULES, FLOATS, [True, False])
    sources = [
        kernel_source(rule, torch.finfo(precision), has_gram=has_gram)
        for rule, precision, has_gram in variants
        if has_gram or not rule.needs_gram
    ]
    return CompiledKernels(dict.fromkeys(sources), tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def as_on_a_gpu(compiled, monkeypatch):
    """Let rules take the path that they take on a GPU."""
    monkeypatch.setattr(torch.cuda.jiterator, "_create_jit_fn", compiled.make)
    monkeypatch.setattr(_pair, "takes_kernels", lambda _: True)
    _kernel._kernel.cache_clear()
    yield
    _kernel._kernel.cache_clear()


@each_rule
@pytest.mark.parametrize("losses_dtype", FLOATS)
@pytest.mark.parametrize("gram_dtype", FLOATS)
@pytest.mark.usefixtures("as_on_a_gpu")
def test_the_kernel_computes_what_the_symbols_stand_for(rule, losses_dtype, gram_dtype):
    losses, gram = problems(torch.float32)
    losses, gram = losses.to(losses_dtype), gram.to(gram_dtype)
    wider = torch.promote_types(losses_dtype, gram_dtype)
    exact = evaluated(rule, losses.to(wider), gram.to(wider), torch.finfo(gram_dtype))
    weights = rule(losses, gram)
    assert weights.dtype == losses_dtype
    assert torch.equal(weights, torch.from_numpy(exact).to(losses_dtype))
    if not rule.needs_gram:
        exact = evaluated(rule, losses, gram.to(losses_dtype), torch.finfo(losses_dtype))
        assert torch.equal(rule(losses), torch.from_numpy(exact))


@each_rule
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_kernel_gives_the_weights_of_tensors(rule, dtype, request):
    losses, gram = (part[:RANDOM] for part in problems(dtype))  # whose weights forgive rounding
    expected = rule(losses, gram)
    request.getfixturevalue("as_on_a_gpu")
    bound = 100 * torch.finfo(dtype).eps
    torch.testing.assert_close(rule(losses, gram), expected, rtol=bound, atol=bound)


@each_rule
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.usefixtures("as_on_a_gpu")
def test_the_kernel_keeps_trouble_visible(rule, dtype):
    losses, gram = troubled(dtype)
    assert rule(losses, gram).isnan().all()
    assert rule(losses[:6]).isnan().all() if not rule.needs_gram else True


@each_rule
@pytest.mark.usefixtures("as_on_a_gpu")
def test_the_kernel_takes_any_leading_dimensions(rule):
    losses, gram = problems()
    whole = rule(losses[:12], gram[:12])
    assert torch.equal(rule(losses[0], gram[0]), whole[0])
    split = rule(losses[:12].view(3, 4, 2), gram[:12].view(3, 4, 2, 2))
    assert torch.equal(split.view(12, 2), whole)
    assert rule(losses[:0], gram[:0]).shape == (0, 2)


@pytest.mark.usefixtures("as_on_a_gpu")
def test_a_batch_in_disguise_takes_no_kernel_whichever_tensor_it_is(monkeypatch):
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    monkeypatch.setattr(_pair, "takes_kernels", lambda tensor: not wrapped(tensor))
    losses, gram = (part[:RANDOM] for part in problems())
    one_loss, one_gram = losses[3].expand_as(losses), gram[3].expand_as(gram)
    weights = torch.func.vmap(MEGA2(), in_dims=(0, None))(losses, gram[3])
    torch.testing.assert_close(weights, MEGA2()(losses, one_gram))
    weights = torch.func.vmap(MEGA2(), in_dims=(None, 0))(losses[3], gram)
    torch.testing.assert_close(weights, MEGA2()(one_loss, gram))


@pytest.mark.usefixtures("as_on_a_gpu")
def test_a_rule_has_one_kernel():
    losses, gram = problems()
    for rule in (MEGA2(), MEGA2(max_angle=math.pi), MEGA2(balance=False)):
        rule(losses, gram)
    assert _kernel._kernel.cache_info().misses == 2


@each_rule
@pytest.mark.parametrize("has_gram", [True, False])
def test_torch_finds_the_function_in_the_source(rule, has_gram):
    if has_gram or not rule.needs_gram:
        source = kernel_source(rule, torch.finfo(torch.float32), has_gram=has_gram)
        assert torch.cuda.jiterator._create_jit_fn(source).kernel_name == "weigh_pair"


def test_a_formula_that_asks_for_the_value_of_a_symbol_is_refused():
    with pytest.raises(TypeError, match="cannot branch"):
        max(Symbol("current"), 0.0)


def test_kernels_are_for_tensors_of_a_gpu_alone():
    assert not takes_kernels(torch.ones(2))
    assert not takes_kernels(torch.ones(2, device="meta"))
    with torch._subclasses.FakeTensorMode():
        assert not takes_kernels(torch.ones(2, device="cuda"))
