"""Any nn.Module in the laboratory: the networks written by hand compute what it does, faster.

What is compared are steps in double precision.
"""

from itertools import pairwise

import numpy as np
import pytest
import torch
from resnet_oracles import Column
from torch import nn
from torch.nn import functional

from engram.lab.engine import Batch, Rows, cross_entropy
from engram.lab.networks import MLP, ModuleNetwork, ResNet, network_source
from engram.rules import AGEM, GEM, MEGA1, MEGA2, Current

pytestmark = pytest.mark.numerical

RULES = [Current(), AGEM(), MEGA1(), MEGA2(), GEM()]
SIZES = (12, 6, 5, 3)


def batch(shape, runs, count, seed, classes, **more):
    source = torch.Generator().manual_seed(seed)
    inputs = torch.rand(runs, count, *shape, generator=source, dtype=torch.float64)
    return Batch(inputs, torch.randint(classes, (runs, count), generator=source), **more)


def drawn(network, runs):
    sources = [np.random.default_rng(seed) for seed in range(runs)]
    return torch.stack([network.initialise(source) for source in sources]).double()


class SizedMLP(nn.Sequential):
    def __init__(self, shape, outputs):
        layers = [nn.Linear(n, m) for n, m in pairwise((*shape, *SIZES[1:-1], outputs))]
        super().__init__(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])


def module_of(factory, shape, outputs, **arguments):
    return ModuleNetwork(network_source(factory, arguments), shape, outputs)


def as_module(mlp, flat):
    """Return a perceptron's parameters as the module has them: its weights are [out, in]."""
    parts = [part for weight, bias in mlp.layers(flat) for part in (weight.mT, bias.squeeze(-2))]
    return torch.cat([part.flatten(1) if part.dim() > 2 else part for part in parts], -1)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("runs", [1, 3])
def test_the_perceptron_takes_the_steps_of_a_module(rule, runs):
    fast, general = MLP(SIZES), module_of(SizedMLP, SIZES[:1], SIZES[-1])
    parameters = drawn(fast, runs)
    hand = Rows(fast, parameters)
    module = Rows(general, as_module(fast, parameters).clone())
    groups = 2 if rule.reference == "per task" else 1
    for step in range(5):
        current = batch(SIZES[:1], runs, 4, step, SIZES[-1])
        reference = batch(SIZES[:1], runs, 6, 100 + step, SIZES[-1], groups=groups)
        given = (current, None if rule == Current() else reference)
        mine, theirs = hand.step(rule, 0.1, *given), module.step(rule, 0.1, *given)
        torch.testing.assert_close(theirs.losses, mine.losses, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(theirs.weights, mine.weights, rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(
            module.parameters, as_module(fast, hand.parameters), rtol=1e-9, atol=1e-11
        )


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("runs", [1, 2])
def test_the_residual_network_takes_the_steps_of_a_module(rule, runs):
    shape, classes = (3, 8, 8), 5
    fast, general = ResNet(classes, 2), module_of("resnet18-reduced", shape, classes, width=2)
    parameters = drawn(fast, runs)
    hand = Rows(fast, parameters)
    copied = torch.zeros(runs, general.size, dtype=torch.float64)
    for mine, theirs in zip(parameters, copied, strict=True):
        for name, view in general.named_parameters(theirs).items():
            view.copy_(fast.named_parameters(mine)[name])
    module = Rows(general, copied)
    groups = 2 if rule.reference == "per task" else 1
    for step in range(3):
        current = batch(shape, runs, 4, step, classes)
        reference = batch(shape, runs, 6, 100 + step, classes, groups=groups)
        given = (current, None if rule == Current() else reference)
        mine, theirs = hand.step(rule, 0.05, *given), module.step(rule, 0.05, *given)
        torch.testing.assert_close(theirs.losses, mine.losses, rtol=1e-8, atol=1e-10)
        for one in range(runs):
            weights = fast.named_parameters(hand.parameters[one])
            for name, view in general.named_parameters(module.parameters[one]).items():
                torch.testing.assert_close(view, weights[name], rtol=1e-6, atol=1e-8)
            averages = fast.named_buffers(hand.buffers[one])
            for name, view in general.named_buffers(module.buffers[one], torch.float64).items():
                if name.endswith("tracked"):
                    assert view == (1 + (rule != Current()) * groups) * (step + 1)
                else:
                    torch.testing.assert_close(view, averages[name], rtol=1e-6, atol=1e-8)


class ProgressiveColumn(nn.Module):
    """The newest column of a perceptron of three layers, which reads frozen ones before it."""

    frozen = ()

    def __init__(self, shape, outputs):
        super().__init__()
        sizes = (shape[0], 5, 4, outputs)
        count = len(self.frozen)
        pairs = list(pairwise(sizes))
        self.before = nn.ModuleList(self.frozen).requires_grad_(False)
        self.laterals = nn.ModuleList(
            nn.ModuleList(nn.Linear(*pair) for _ in range(count)) for pair in pairs
        )
        self.own = nn.ModuleList(nn.Linear(*pair) for pair in pairs)

    def states(self, inputs):
        """Return what every layer reads of every column, this one last; and the logits."""
        earlier = self.before[-1].states(inputs)[0] if self.before else [[] for _ in self.own]
        hidden, read = inputs, []
        for place, layer in enumerate(self.own):
            columns = [inputs] * len(self.before) if place == 0 else earlier[place]
            read.append([*columns, hidden])
            lateral = sum(u(h) for u, h in zip(self.laterals[place], columns, strict=True))
            hidden = layer(hidden) + lateral
            if place < len(self.own) - 1:
                hidden = functional.relu(hidden)
        return read, hidden

    def forward(self, inputs):
        return self.states(inputs)[1]


def test_progressive_columns_take_the_steps_of_modules_with_frozen_parts(monkeypatch):
    sizes = (6, 5, 4, 3)
    fast = MLP(sizes)
    columns = fast.progressive(drawn(fast, 1))
    layouts, ended = [], []  # of each column before: a module, and its weights by name
    for task in range(3):
        if task:
            column = columns.initialise(np.random.default_rng(40 + task))
            columns.grow(column[None].double())
        monkeypatch.setattr(ProgressiveColumn, "frozen", tuple(layouts))
        general = module_of(ProgressiveColumn, sizes[:1], sizes[-1])
        held = general.initial_buffers(torch.zeros(1, 1, dtype=torch.float64))
        for name, view in general.named_buffers(held[0], torch.float64).items():
            _, earlier, own = name.split(".", 2)
            view.copy_(ended[int(earlier)][own])
        rows = Rows(general, torch.zeros(1, general.size, dtype=torch.float64), held)
        weights = general.named_parameters(rows.parameters[0])
        for name, value in column_weights(columns, task).items():
            weights[name].copy_(value)
        for step in range(4):
            given = batch(sizes[:1], 1, 7, 10 * task + step, sizes[-1])
            logits, tape = columns.forward(given.inputs)
            losses, gradient = cross_entropy(logits, given)
            columns.descend(tape, gradient, 0.1)
            mix = rows.step(Current(), 0.1, given, None)
            torch.testing.assert_close(mix.losses, losses, rtol=1e-10, atol=1e-12)
            for name, value in column_weights(columns, task).items():
                torch.testing.assert_close(weights[name], value, rtol=1e-9, atol=1e-11)
        ended.append({name: value.clone() for name, value in weights.items()})
        layouts.append(ProgressiveColumn(sizes[:1], sizes[-1]))


def column_weights(columns, task):
    """Return the weights of the newest column of a perceptron, by the module's names."""
    found = {}
    for layer, (weight, bias) in enumerate(columns._layers(columns.columns[-1])):
        names = [*(f"laterals.{layer}.{c}" for c in range(task)), f"own.{layer}"]
        for place, name in enumerate(names):
            found[f"{name}.weight"] = weight[0, place].mT
            found[f"{name}.bias"] = bias[0, place, 0]
    return found


class ResidualColumn(Column):
    """The newest column of a residual network, which reads a frozen one before it."""

    def __init__(self, shape, outputs):  # noqa: ARG002
        super().__init__(outputs, 2, 1)
        self.before = Column(outputs, 2, 0).requires_grad_(False)

    def train(self, mode=True):
        super().train(mode)
        self.before.eval()  # it normalises by the averages that its own task left
        return self

    def forward(self, images):
        return super().forward(images, [self.before(images, [])])[-1]


def test_columns_of_residual_networks_take_the_steps_of_a_module_with_a_frozen_part():
    shape, classes = (3, 8, 8), 3
    fast = ResNet(classes, 2)
    columns = fast.progressive(drawn(fast, 1))
    for step in range(3):
        given = batch(shape, 1, 5, step, classes)
        logits, tape = columns.forward(given.inputs)
        columns.descend(tape, cross_entropy(logits, given)[1], 0.05)
    columns.grow(columns.initialise(np.random.default_rng(41))[None].double())
    general = module_of(ResidualColumn, shape, classes)
    made = ResidualColumn(shape, classes).double()
    first = Column.of_column(fast, columns.columns[0][0], columns.buffers[0][0], classes, 2, 0)
    made.before.load_state_dict(first.state_dict())
    own = Column.of_column(fast, columns.columns[1][0], columns.buffers[1][0], classes, 2, 1)
    made.load_state_dict(own.state_dict(), strict=False)
    held = general.initial_buffers(torch.zeros(1, 1, dtype=torch.float64))
    for name, view in general.named_buffers(held[0], torch.float64).items():
        view.copy_(made.state_dict()[name])
    rows = Rows(general, torch.zeros(1, general.size, dtype=torch.float64), held)
    for name, view in general.named_parameters(rows.parameters[0]).items():
        view.copy_(made.state_dict()[name])
    for step in range(3):
        given = batch(shape, 1, 5, 10 + step, classes)
        logits, tape = columns.forward(given.inputs)
        losses, gradient = cross_entropy(logits, given)
        columns.descend(tape, gradient, 0.05)
        mix = rows.step(Current(), 0.05, given, None)
        torch.testing.assert_close(mix.losses, losses, rtol=1e-8, atol=1e-10)
        now = Column.of_column(fast, columns.columns[1][0], columns.buffers[1][0], classes, 2, 1)
        for name, view in general.named_parameters(rows.parameters[0]).items():
            torch.testing.assert_close(view, now.state_dict()[name], rtol=1e-6, atol=1e-8)


def test_averages_of_passes_side_by_side_are_those_of_passes_in_turn():
    shape, classes = (3, 8, 8), 5
    network = module_of("resnet18-reduced", shape, classes, width=2)
    parameters = drawn(network, 2)
    rows = torch.empty(2, 1, network.size, dtype=torch.float64)
    in_turn = Rows(network, parameters)
    side_by_side = in_turn.buffers.clone()
    batches = [batch(shape, 2, 4, seed, classes) for seed in range(3)]
    apart = network.apart(side_by_side, len(batches))
    for given, own in zip(batches, apart, strict=True):
        in_turn.gradients(given, rows)
        in_turn._pass(given, rows, own)
    network.put_together(side_by_side, apart)
    for one in range(2):
        torch.testing.assert_close(
            network.named_buffers(side_by_side[one], torch.float64),
            network.named_buffers(in_turn.buffers[one], torch.float64),
        )


class Marked(nn.Module):
    """Batch norm, a mask that has no average, and a count."""

    def __init__(self, shape, outputs):
        super().__init__()
        self.norm, self.last = nn.BatchNorm1d(*shape), nn.Linear(*shape, outputs)
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf, 0.0]))

    def forward(self, inputs):
        return self.last(self.norm(inputs)) + self.mask.nan_to_num(neginf=0.0)


def test_only_what_training_moves_has_an_average():
    network = module_of(Marked, (4,), 3)
    rows = Rows(network, drawn(network, 2))
    average = rows.buffers.clone()
    expected = [network.named_buffers(each, torch.float64) for each in average.clone()]
    shares = torch.tensor([[0.25], [1.0]], dtype=torch.float64)
    for seed in range(3):
        rows.gradients(batch((4,), 2, 5, seed, 3), torch.empty(2, 1, network.size).double())
        network.average_buffers(average, rows.buffers, shares)
        for run, share in enumerate((0.25, 1.0)):
            now = network.named_buffers(rows.buffers[run], torch.float64)
            for name in ("norm.running_mean", "norm.running_var"):
                then = expected[run][name]
                expected[run][name] = (1 - share) * then + share * now[name]
            expected[run]["norm.num_batches_tracked"] = now["norm.num_batches_tracked"]
            torch.testing.assert_close(
                network.named_buffers(average[run], torch.float64), expected[run]
            )
