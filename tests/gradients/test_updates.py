"""The mixer, the one-line form and the paper's formulas give one and the same update."""

import dataclasses

import pytest
import torch
from gradient_oracles import (
    POOLED,
    RULES,
    examples,
    gradient,
    loss_on,
    network,
    sgd,
    update_by_hand,
    written,
)

import engram
from engram.rules import GEM, MEGA2


def name(rule):
    return type(rule).__name__


def references(rule):
    """Return the reference batches of a rule: none, one, or one for each of three tasks."""
    count = {"none": 0, "pooled": 1, "per task": 3}[rule.reference]
    return [examples(10 + task, 16) for task in range(count)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rule", RULES, ids=name)
@pytest.mark.parametrize("memory_first", [True, False])
def test_the_mixer_writes_the_papers_update(rule, seed, memory_first):
    model, batch = network(seed), examples(seed, 4)
    past = references(rule)
    losses = [loss_on(model, each) for each in [batch, *past]]
    rows = [gradient(loss, model.parameters()) for loss in losses]
    expected = update_by_hand(rule, losses, rows)

    mixer = engram.GradientMixer(sgd(model), rule)
    if not memory_first:
        mixer.backward(loss_on(model, batch))
    for task, each in enumerate(past):
        mixer.backward(loss_on(model, each), row=task)
    if memory_first:
        mixer.backward(loss_on(model, batch))
    mix = mixer.mix()

    torch.testing.assert_close(written(model.parameters()), expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(mix.losses, torch.stack(losses).detach())
    torch.testing.assert_close(mix.weights @ torch.stack(rows), expected, rtol=1e-9, atol=1e-12)
    if rule.needs_gram:
        torch.testing.assert_close(mix.gram, torch.stack(rows) @ torch.stack(rows).T)
    else:
        assert mix.gram is None


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_one_line_is_the_same_step(rule):
    model = network(1)
    batches = [examples(1, 4), *references(rule)]
    losses = [loss_on(model, each) for each in batches]
    rows = [gradient(loss, model.parameters()) for loss in losses]
    mix = engram.backward(losses, model.parameters(), rule)
    expected = update_by_hand(rule, [loss.detach() for loss in losses], rows)
    torch.testing.assert_close(written(model.parameters()), expected, rtol=1e-9, atol=1e-12)
    assert mix.weights.shape == (len(losses),)


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_with_nothing_remembered_the_update_is_plain_training(rule):
    plain, model = network(3), network(3)
    loss_on(plain, examples(3, 4)).backward()
    mixer = engram.GradientMixer(sgd(model), rule)
    mixer.backward(loss_on(model, examples(3, 4)))
    assert mixer.mix().weights.tolist() == [1]
    assert torch.equal(written(model.parameters()), written(plain.parameters()))


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_losses_may_share_a_graph(rule):
    model = network(2)
    inputs, classes = examples(2, 20)
    per_example = torch.nn.functional.cross_entropy(model(inputs), classes, reduction="none")
    count = {"none": 1, "pooled": 2, "per task": 4}[rule.reference]
    losses = [part.mean() for part in per_example.chunk(count)]
    rows = [gradient(loss, model.parameters()) for loss in losses]
    engram.backward(losses, model.parameters(), rule)
    expected = update_by_hand(rule, [loss.detach() for loss in losses], rows)
    torch.testing.assert_close(written(model.parameters()), expected, rtol=1e-9, atol=1e-12)


class Square(torch.autograd.Function):
    """A function of one's own, whose context has an attribute by a name that autograd uses too."""

    @staticmethod
    def forward(context, value):
        context.variable = 2
        context.save_for_backward(value)
        return value.square()

    @staticmethod
    def backward(context, gradient):
        return context.variable * context.saved_tensors[0] * gradient


def test_losses_may_share_functions_of_ones_own():
    weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    shared = Square.apply(weight)
    mix = engram.backward([shared[0], shared[1]], [weight], MEGA2())
    assert mix.gram.tolist() == [[36.0, 0.0], [0.0, 64.0]]


class KeepsNoGraph(torch.autograd.Function):
    """The identity, as part of what torch.compile makes of a model: its graph cannot be kept."""

    @staticmethod
    def forward(_, value):
        return value.clone()

    @staticmethod
    def backward(_, gradient):
        if torch._C._autograd._get_current_graph_task_keep_graph():
            raise RuntimeError("This backward function was compiled with non-empty donated buffers")
        return gradient


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_a_compiled_models_losses_have_graphs_of_their_own(rule):
    model, plain = network(), network()
    batches = [examples(1, 4), examples(2, 7)]
    losses = [KeepsNoGraph.apply(loss_on(model, batch)) for batch in batches]
    mix = engram.backward(losses, model.parameters(), rule)
    expected = engram.backward([loss_on(plain, each) for each in batches], plain.parameters(), rule)
    assert mix.weights.tolist() == expected.weights.tolist()
    assert torch.equal(written(model.parameters()), written(plain.parameters()))


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_a_rule_without_a_gram_matrix_takes_one_backward_pass(rule, monkeypatch):
    passes, original = [], torch.autograd.backward

    def counted(*arguments, **named):
        passes.append(arguments)
        original(*arguments, **named)

    monkeypatch.setattr(torch.autograd, "backward", counted)
    model = network()
    losses = [loss_on(model, examples(seed, 4)) for seed in (0, 1)]
    engram.backward(losses, model.parameters(), rule)
    assert len(passes) == (2 if rule.needs_gram else 1)


@pytest.mark.parametrize("rule", POOLED, ids=name)
def test_the_rule_compares_the_value_and_not_the_loss(rule):
    """A penalty is differentiated, but it does not count as a loss."""
    model, batches = network(5), [examples(5, 4), examples(6, 16)]

    def penalised(batch):
        loss = loss_on(model, batch)
        return loss + sum(p.square().sum() for p in model.parameters()), loss

    pairs = [penalised(batch) for batch in batches]
    rows = [gradient(loss, model.parameters()) for loss, _ in pairs]
    values = [value.detach() for _, value in pairs]
    expected = update_by_hand(rule, values, rows)

    mixer = engram.GradientMixer(sgd(model), rule)
    for row, batch in zip(["current", "memory"], batches, strict=True):
        loss, value = penalised(batch)
        mixer.backward(loss, row=row, value=value)
    mixer.mix()
    torch.testing.assert_close(written(model.parameters()), expected, rtol=1e-9, atol=1e-12)

    losses, values = zip(*(penalised(batch) for batch in batches), strict=True)
    engram.backward(losses, model.parameters(), rule, values=[value.item() for value in values])
    torch.testing.assert_close(written(model.parameters()), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rule", [*POOLED, GEM()], ids=name)
def test_micro_batches_accumulate_to_the_big_batch(rule):
    model, batch, past = network(7), examples(7, 12), examples(8, 24)

    def step(parts):
        mixer = engram.GradientMixer(sgd(model), rule)
        for row, (inputs, classes) in [("memory", past), ("current", batch)]:
            for part in zip(inputs.chunk(parts), classes.chunk(parts), strict=True):
                mixer.backward(loss_on(model, part) / parts, row=row)
        return mixer.mix(), written(model.parameters())

    whole, expected = step(1)
    parts, update = step(4)
    torch.testing.assert_close(update, expected)
    torch.testing.assert_close(parts.weights, whole.weights)
    torch.testing.assert_close(parts.losses, whole.losses)


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_losses_may_come_one_by_one_the_current_one_last(rule):
    model, batches = network(1), [examples(1, 4), *references(rule)]
    freed = []

    def made():
        for batch in [*batches[1:], batches[0]]:
            loss = loss_on(model, batch)
            yield loss, loss
            with pytest.raises(RuntimeError, match="second time"):
                loss.backward()
            freed.append(loss)

    losses = [loss_on(model, batch) for batch in batches]
    rows = [gradient(loss, model.parameters()) for loss in losses]
    mix = engram.gradients.backward_each(made(), model.parameters(), rule)
    expected = update_by_hand(rule, losses, rows)
    torch.testing.assert_close(written(model.parameters()), expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(mix.losses, torch.stack(losses).detach())
    assert len(freed) == len(batches)


@pytest.mark.parametrize("rule", POOLED, ids=name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_loss_may_be_a_vector_of_one_in_any_precision(rule, dtype):
    weight = torch.tensor([1.0, 2.0, -1.0], dtype=dtype, requires_grad=True)
    losses = [(weight * 2).sum(0, keepdim=True), weight.square().sum(0, keepdim=True)]
    mix = engram.backward(losses, [weight], rule)
    rows = torch.tensor([[2.0, 2.0, 2.0], [2.0, 4.0, -2.0]], dtype=torch.float64)
    expected = update_by_hand(rule, torch.tensor([4.0, 6.0]), rows)
    assert mix.losses.tolist() == [4, 6]
    assert weight.grad.dtype == dtype
    torch.testing.assert_close(weight.grad.double(), expected, rtol=1e-2, atol=1e-6)


def test_what_a_mix_tells_stays_the_same_and_cannot_be_replaced():
    model = network(2)
    losses = [loss_on(model, examples(seed, 4)) for seed in (0, 1)]
    mix = engram.backward(losses, model.parameters(), MEGA2())
    assert mix.losses is mix.losses
    assert mix.weights is mix.weights
    assert mix.gram is mix.gram
    with pytest.raises(dataclasses.FrozenInstanceError):
        mix.weights = torch.ones(2)
    changed = dataclasses.replace(mix, weights=torch.ones(2))
    assert changed.weights.tolist() == [1, 1]
    assert torch.equal(changed.gram, mix.gram)
