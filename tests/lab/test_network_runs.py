"""Runs with a network of one's own: every method, alone and stacked, stopped and resumed."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from dying_checkpoints import Dying, Killed, checkpoint
from tiny_worlds import run_whole, same_bits, tiny_spec
from torch import nn

from engram.errors import EngramError
from engram.lab.methods import FinishedTask, names
from engram.lab.networks import MLP, ModuleNetwork, network_source
from engram.lab.protocol import build_method, build_stream, check_network, run

METHODS = [name for name in names() if name != "prog-nn"]


class Small(nn.Sequential):
    """The perceptron of the tiny benchmark, as a module."""

    def __init__(self, shape, outputs):
        layers = [nn.Linear(*pair) for pair in pairwise((*shape, 6, outputs))]
        super().__init__(layers[0], nn.ReLU(), layers[1])


class Everything(nn.Module):
    """Batch norm, dropout, tied weights, a frozen part, and buffers of its own that it assigns to.

    What is frozen is drawn, another one for each run.
    """

    def __init__(self, shape, outputs):
        super().__init__()
        self.frozen = nn.Linear(*shape, 8).requires_grad_(False)
        self.norm, self.dropout = nn.BatchNorm1d(8), nn.Dropout(0.4)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8, bias=False)
        self.second.weight = self.first.weight
        self.head = nn.Linear(8, outputs)
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, inputs):
        hidden = self.norm(torch.tanh(self.frozen(inputs))) - 0.1 * self.mean
        if self.training:
            self.seen = self.seen + len(inputs)
            self.mean = 0.9 * self.mean + 0.1 * hidden.detach().mean(0)
        hidden = self.dropout(torch.tanh(self.first(hidden)))
        return self.head(torch.tanh(self.second(hidden)) * self.scale)


class Convolutions(nn.Module):
    """Images with channels last, batch norm and dropout of whole channels."""

    def __init__(self, shape, outputs):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(shape[0], 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout2d(0.2)
        )
        self.head = nn.Linear(4, outputs)
        self.to(memory_format=torch.channels_last)

    def forward(self, images):
        return self.head(self.body(images).mean((2, 3)))


def with_network(spec, network):
    return replace(spec, network=network_source(network))


@pytest.fixture
def same_beginning(monkeypatch):
    """Let the module begin where the perceptron that is written by hand does."""
    hand = MLP((20, 6, 3))

    def initialise(self, source):  # noqa: ARG001
        flat = hand.initialise(source)
        parts = [part for weight, bias in hand.layers(flat) for part in (weight.mT, bias)]
        return torch.cat([part.flatten() for part in parts])

    monkeypatch.setattr(ModuleNetwork, "initialise", initialise)


@pytest.mark.numerical
@pytest.mark.usefixtures("same_beginning")
@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_with_a_module_what_it_does_with_the_network_by_hand(method):
    spec = tiny_spec(method, "tiny-double")
    for hand, module in zip(run(spec, [0, 1]), run(with_network(spec, Small), [0, 1]), strict=True):
        assert module.accuracy == hand.accuracy
        assert module.curve == hand.curve


@pytest.mark.numerical
@pytest.mark.parametrize(
    "method",
    ["derpp", "ewc", "gdumb", "gem", "icarl", "mega-ii", "multi-task", "recommended", "rwalk"],
)
def test_runs_are_the_same_alone_and_stacked(method):
    spec = with_network(tiny_spec(method, "tiny-double", examples=24), Everything)
    network = ModuleNetwork(network_source(Everything), (20,), 3)
    together, stack = run_whole(spec, [3, 4])
    for place, seed in enumerate((3, 4)):
        (alone,), own = run_whole(spec, [seed])
        assert alone["accuracy"] == together[place]["accuracy"]
        assert alone["curve"] == together[place]["curve"]
        torch.testing.assert_close(own[0]["parameters"][0], stack[0]["parameters"][place])
        mine, theirs = (
            network.named_buffers(bytes_, torch.float64)
            for bytes_ in (own[0]["buffers"][0], stack[0]["buffers"][place])
        )
        torch.testing.assert_close(mine, theirs)
        assert mine["seen"] > 0


@pytest.mark.numerical
@pytest.mark.parametrize("method", ["mega-ii", "gem", "icarl"])
def test_a_run_that_is_killed_and_resumed_ends_with_the_same_bits(method, tmp_path):
    spec = with_network(tiny_spec(method, examples=24), Everything)
    whole = run_whole(spec, [0, 1])
    while True:
        try:
            place = checkpoint(tmp_path, Dying, lives=3)
            again = run_whole(spec, [0, 1], checkpoint=place)
        except Killed:
            continue
        break
    assert same_bits(again, whole)


@pytest.mark.parametrize("method", ["mega-ii", "gem", "rwalk"])
def test_images_and_convolutions(method):
    spec = with_network(tiny_spec(method, "tiny-images", tasks=2, examples=12), Convolutions)
    (outcome,) = run(spec, [0])
    assert outcome.failure is None
    assert outcome.facts["parameters"] == 4 * 3 * 9 + 4 + 8 + 4 * 3 + 3


def test_what_two_examples_show_of_a_network():
    made = ModuleNetwork(network_source(Everything), (20,), 3)
    assert made.behaviour.draws
    assert made.behaviour.mixes
    assert made.behaviour.least_batch == 2
    assert made.uncapturable(torch.zeros(1), pads=False).startswith(
        "the network draws random numbers"
    )
    plain = ModuleNetwork(network_source(Small), (20,), 3)
    assert not plain.behaviour.draws
    assert not plain.behaviour.mixes
    assert plain.behaviour.alone is None
    assert plain.uncapturable(torch.zeros(1), pads=True) is None


class Normalised(nn.Sequential):
    def __init__(self, shape, outputs):
        super().__init__(nn.Linear(*shape, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, outputs))


@pytest.mark.parametrize("method", ["mega-ii", "der", "derpp", "recommended"])
def test_with_statistics_of_batches_tasks_are_captured_whose_reads_are_of_one_length(method):
    given = {"memory": "reservoir", "memory_per_class": 4, "reference_batch": 4}
    spec = with_network(tiny_spec(method, **given), Normalised)
    stream = build_stream(spec, [0], "cpu")
    made, reasons = build_method([spec], stream, "cpu"), []
    for task in range(2):
        examples = made.stage_examples(stream.train(task))
        made.begin_task(task, examples.labels)
        reasons.append(made.uncaptured())
        made.end_task(task, FinishedTask(examples))
    assert reasons == ["the network has statistics of batches that are not all of one length", None]


def test_prog_nn_is_refused_by_name():
    with pytest.raises(EngramError, match=r"prog-nn grows by columns .*Small.*: leave --network"):
        check_network(with_network(tiny_spec("prog-nn"), Small))


def test_single_examples_are_refused_for_batch_norm():
    with pytest.raises(EngramError, match=r"Everything.* cannot be trained on single examples"):
        check_network(with_network(tiny_spec("mer"), Everything))
    with pytest.raises(EngramError, match=r"batch_size must be another than 4 .* task 1 is"):
        check_network(with_network(tiny_spec("van", examples=25), Everything))


class Growing(Small):
    """Makes a buffer longer in each pass."""

    def __init__(self, shape, outputs):
        super().__init__(shape, outputs)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, inputs):
        self.seen = torch.cat([self.seen, inputs[0, :1]])
        return super().forward(inputs)


class Several(Small):
    """Gives more than its logits."""

    def forward(self, inputs):
        return super().forward(inputs), inputs


class Detached(Small):
    """Gives outputs that no gradient comes through."""

    def forward(self, inputs):
        return super().forward(inputs).detach()


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        (Growing, "makes seen .* of "),
        (Several, "must give a tensor of floats, and gives"),
        (Detached, "do not depend on any parameter"),
    ],
)
def test_what_cannot_be_trained_is_refused(network, sentence):
    with pytest.raises(EngramError, match=rf"{network.__name__}.* {sentence}"):
        check_network(with_network(tiny_spec("van"), network))


class Apart(Small):
    """Halves its inputs, first in a tensor of its own, then where they are, openly or not."""

    def forward(self, inputs):
        return super().forward(0.5 * inputs)


class InPlace(Small):
    def forward(self, inputs):
        return super().forward(inputs.mul_(0.5))


class InData(Small):
    def forward(self, inputs):
        inputs.data.mul_(0.5)
        return super().forward(inputs)


@pytest.mark.parametrize("network", [InPlace, InData])
@pytest.mark.parametrize("method", ["mega-ii", "mer", "gdumb"])
def test_what_a_network_does_to_its_inputs_reaches_neither_stream_nor_memory(method, network):
    apart, within = (
        run(with_network(tiny_spec(method, "tiny-double"), each), [0, 1])
        for each in (Apart, network)
    )
    for one, other in zip(apart, within, strict=True):
        assert one.accuracy == other.accuracy
        assert one.curve == other.curve


class Remembering(nn.Module):
    """Keeps something between passes that no checkpoint knows of."""

    def __init__(self, shape, outputs):
        super().__init__()
        self.head, self.before = nn.Linear(*shape, outputs), 0.0

    def forward(self, inputs):
        logits = self.head(inputs) + self.before
        self.before = float(logits.mean().detach())
        return logits


def test_what_is_kept_outside_of_buffers_is_refused():
    with pytest.raises(EngramError, match=r"Remembering.* must be in registered buffers"):
        check_network(with_network(tiny_spec("van"), Remembering))
