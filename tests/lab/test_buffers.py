"""Methods on a network with running averages: which passes move them, and that they are saved."""

import pytest
import torch

from engram.gradients import Mix
from engram.lab.benchmarks import Examples
from engram.lab.engine import Batch, Rows
from engram.lab.methods import Entry, FinishedTask, Method, MethodSettings, Setup, method_entry
from engram.lab.networks import Network
from engram.testing import Practice, check_method

FEATURES, CLASSES, BATCH = 64, 3, 4  # as the kit's stream has them


class Centred(Network):
    """logits = (x − m/2) W: m is the batch's mean in training, its running average otherwise."""

    size, buffer_size = FEATURES * CLASSES, FEATURES

    def initialise(self, source):
        return torch.from_numpy(source.standard_normal(self.size)).float() / 10

    def forward(self, parameters, inputs, buffers, *, weights=None, training=True):
        means = buffers
        if training:
            present = torch.ones(inputs.shape[:2]) if weights is None else (weights > 0).float()
            shares = present / present.sum(-1, keepdim=True)
            means = (shares.to(inputs).unsqueeze(-1) * inputs).sum(1)
            buffers.lerp_(means, 0.1)
        centred = inputs - means.unsqueeze(1) / 2
        return centred @ self.matrix(parameters), [centred]

    def backward(self, parameters, tape, gradient, rows):  # noqa: ARG002
        assert rows.shape[1] == 1
        rows[:, 0] = (tape[0].transpose(1, 2) @ gradient).flatten(1)

    def predict(self, parameters, inputs, columns, buffers):
        whole = inputs
        if columns is not None:
            whole = inputs.new_zeros(len(parameters), len(inputs), FEATURES)
            for run, places in enumerate(columns):
                whole[run][:, places] = inputs
        return self.forward(parameters, whole, buffers, training=False)[0]

    @staticmethod
    def matrix(parameters):
        return parameters.view(-1, FEATURES, CLASSES)


@pytest.fixture
def centred(monkeypatch):
    monkeypatch.setattr(Practice, "network", lambda _: Centred())


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("van", {}),
        ("mega-ii", {"memory_per_class": 2, "reference_batch": 3}),
        ("mega-ii", {"memory_per_class": 2, "reference_batch": 3, "memory": "reservoir"}),
        ("gem", {"memory_per_class": 2}),
        ("ewc", {"formula": "kirkpatrick"}),
        ("mas", {}),
        ("mer", {"draws": 2, "memory_size": 12}),
        ("icarl", {"memory_size": 12}),
    ],
)
@pytest.mark.usefixtures("centred")
def test_methods_conform(name, settings):
    """Alone or stacked, saved and loaded, asked in between: buffers are part of the result."""
    check_method(name, **settings)


@pytest.mark.usefixtures("centred")
def test_a_method_that_does_not_save_them_is_found():
    class Leaky(Method):
        state = ("parameters",)

        def observe(self, step, stored, batch):  # noqa: ARG002
            gradient = torch.empty_like(self.parameters)
            losses = self.rows.gradient(batch, gradient).unsqueeze(-1)
            return Mix(losses, None, torch.ones_like(losses))

    with pytest.raises(AssertionError, match="another result when it is saved"):
        check_method(Entry("mine", Leaky, MethodSettings))


@pytest.mark.numerical
def test_the_reference_batch_moves_them_first_then_the_current_one():
    torch.manual_seed(0)
    network = Centred()
    rows = Rows(network, torch.randn(1, network.size))
    current, reference = (
        Batch(torch.randn(1, 5, FEATURES), torch.zeros(1, 5).long()) for _ in "cr"
    )
    rows.of(current, reference)
    expected = 0.9 * 0.1 * reference.inputs.mean(1) + 0.1 * current.inputs.mean(1)
    torch.testing.assert_close(rows.buffers, expected)


def learned(name, **settings):
    """Return a method that has learned a task on random images, and the task."""
    stream = Practice((3, 4), "cpu")
    network, entry = Centred(), method_entry(name)
    start = torch.randn(2, network.size, generator=torch.manual_seed(1))
    setup = Setup(network, start, (3, 4), stream)
    method = entry.build(setup, entry.settings(batch_size=BATCH, **settings))
    examples = method.stage_examples(stream.deal(0))
    method.begin_task(0, examples.labels)
    for step, start_ in enumerate(range(0, examples.labels.shape[1], BATCH)):
        part = slice(start_, start_ + BATCH)
        inputs = stream.normalise(examples.inputs[:, part])
        method.observe(step, examples.inputs[:, part], Batch(inputs, examples.labels[:, part]))
    return method, examples


def outputs_of(method, examples):
    """The logits in evaluation, and what they are a linear function of."""
    centred = examples.inputs.float() / 255 - method.buffers.unsqueeze(1) / 2
    return centred, centred @ Centred.matrix(method.parameters)


@pytest.mark.numerical
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("mas", {}),
        ("mas", {"formula": "aljundi"}),
        ("ewc", {"formula": "kirkpatrick"}),
        ("icarl", {}),
    ],
)
def test_what_is_measured_when_a_task_ends_leaves_them_alone(name, settings):
    method, examples = learned(name, **settings)
    before = method.buffers.clone()
    assert before.abs().min() > 0
    method.end_task(0, FinishedTask(examples))
    assert torch.equal(method.buffers, before)


@pytest.mark.numerical
@pytest.mark.parametrize(("formula", "size"), [("tables", BATCH), ("aljundi", 1)])
def test_mas_measures_in_evaluation(formula, size):
    method, examples = learned("mas", formula=formula)
    method.end_task(0, FinishedTask(Examples(*(part.clone() for part in examples))))
    centred, logits = outputs_of(method, examples)
    total = torch.zeros_like(method.parameters)
    for start in range(0, logits.shape[1], size):
        part = slice(start, start + size)
        total += (2 * centred[:, part].transpose(1, 2) @ logits[:, part]).flatten(1).abs()
    torch.testing.assert_close(method.total, total / logits.shape[1])


@pytest.mark.numerical
def test_icarl_notes_outputs_in_evaluation():
    method, examples = learned("icarl")
    method.end_task(0, FinishedTask(examples))
    held = method.exemplars
    _, expected = outputs_of(method, Examples(held["inputs"], held["labels"]))
    torch.testing.assert_close(held["outputs"], expected)
