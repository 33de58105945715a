"""The ResNet on flat parameters against plain modules in float64."""

import pytest
import torch
from resnet_oracles import Plain, flattened
from torch.nn import functional

from engram.errors import EngramError
from engram.lab.engine import Batch, Rows
from engram.lab.networks import ResNet
from engram.lab.plan import generator

pytestmark = pytest.mark.numerical

CLASSES, WIDTH = 4, 2
FULL = {"large_images": True, "shortcut_norm": False}
USUAL = {"large_images": True, "max_pool": True}
KINDS = pytest.mark.parametrize(
    ("options", "side"), [({}, 9), (FULL, 20), (USUAL, 36)], ids=["reduced", "full", "usual"]
)


def stack(options=None, runs=2):
    network = ResNet(CLASSES, WIDTH, **options or {})
    drawn = [network.initialise(generator(seed, "parameters")) for seed in range(runs)]
    rows = Rows(network, torch.stack(drawn).double())
    modules = [
        Plain.of(network, *mine, CLASSES, WIDTH, **options or {})
        for mine in zip(rows.parameters, rows.buffers, strict=True)
    ]
    return rows, modules


def batch_of(runs=2, size=6, side=9, seed=0):
    source = torch.Generator().manual_seed(seed)
    images = torch.randn(runs, size, 3, side, side, generator=source, dtype=torch.float64)
    return Batch(images, torch.randint(CLASSES, (runs, size), generator=source))


def loss_of(module, images, labels):
    """Take a pass back and forth; return the loss."""
    module.zero_grad()
    loss = functional.cross_entropy(module(images), labels)
    loss.backward()
    return loss.detach()


def test_the_paper_s_networks_have_as_many_parameters_as_it_says():
    assert ResNet(100).size == 1_109_240
    assert ResNet(200, 64, **FULL).size == 11_174_720 + 102_600
    assert ResNet(850, 64, **FULL).size == 11_174_720 + 436_050
    usual = ResNet(1000, 64, **USUAL)
    assert usual.size == 11_689_512
    assert usual.buffer_size == 9_600


@pytest.mark.parametrize("options", [{}, FULL, USUAL])
def test_names_shapes_and_order_are_those_of_the_public_checkpoint(options):
    network, module = ResNet(CLASSES, WIDTH, **options), Plain(CLASSES, WIDTH, **options)
    flat = torch.arange(network.size)
    named = network.named_parameters(flat)
    assert [(name, view.shape) for name, view in named.items()] == [
        (name, value.shape) for name, value in module.named_parameters()
    ]
    assert torch.equal(torch.cat([flattened(view) for view in named.values()]), flat)
    averages = network.named_buffers(torch.zeros(network.buffer_size))
    known = {"conv1.weight", "bn1.bias", "layer1.0.conv1.weight", "layer2.0.downsample.0.weight"}
    assert known < set(named)
    assert ("layer2.0.downsample.1.weight" in named) == options.get("shortcut_norm", True)
    buffers = dict(module.named_buffers())
    assert [(name, view.shape) for name, view in averages.items()] == [
        (name, value.shape) for name, value in buffers.items() if not name.endswith("tracked")
    ]


def test_named_parameters_can_be_written():
    network = ResNet(CLASSES, WIDTH)
    flat = torch.zeros(network.size)
    network.named_parameters(flat)["fc.bias"].fill_(1)
    assert flat[-CLASSES:].tolist() == [1] * CLASSES
    assert flat.sum() == CLASSES


@KINDS
def test_training_and_evaluation_are_the_module_s(options, side):
    """Two training passes, an evaluation, and a gradient in evaluation."""
    rows, modules = stack(options)
    network, row = rows.network, torch.full_like(rows.parameters, torch.nan)
    for seed in range(2):
        batch = batch_of(side=side, seed=seed)
        losses = rows.gradient(batch, row)
        for run, module in enumerate(modules):
            loss = loss_of(module, batch.inputs[run], batch.labels[run])
            torch.testing.assert_close(losses[run], loss)
            torch.testing.assert_close(row[run], module.flat_gradient())
            torch.testing.assert_close(rows.buffers[run], module.flat_averages())
    shown, before = batch_of(side=side, seed=2), rows.buffers.clone()
    shared = network.predict(rows.parameters, shown.inputs[0], None, rows.buffers)
    own = network.predict(rows.parameters, shown.inputs, None, rows.buffers)
    losses = rows.gradient(shown, row, training=False)
    for run, module in enumerate(modules):
        module.eval()
        torch.testing.assert_close(shared[run], module(shown.inputs[0]).detach())
        torch.testing.assert_close(own[run], module(shown.inputs[run]).detach())
        loss = loss_of(module, shown.inputs[run], shown.labels[run])
        torch.testing.assert_close(losses[run], loss)
        torch.testing.assert_close(row[run], module.flat_gradient())
    assert torch.equal(rows.buffers, before)


@pytest.mark.parametrize("padded", [False, True])
def test_each_part_of_a_batch_is_a_pass_of_its_own(padded):
    """With its own batch statistics, and the running averages moved one after the other."""
    rows, modules = stack()
    batch = batch_of(size=12)._replace(groups=3)
    real = 3 if padded else 4
    if padded:
        weights = torch.zeros(2, 3, 4, dtype=torch.float64)
        weights[..., :real] = 1 / real
        batch = batch._replace(weights=weights.flatten(1))
    together = torch.full((2, 3, rows.network.size), torch.nan, dtype=torch.float64)
    losses = rows.gradients(batch, together)
    for part in range(3):
        these = slice(4 * part, 4 * part + real)
        for run, module in enumerate(modules):
            loss = loss_of(module, batch.inputs[run, these], batch.labels[run, these])
            torch.testing.assert_close(losses[run, part], loss)
            torch.testing.assert_close(together[run, part], module.flat_gradient())
    for run, module in enumerate(modules):
        torch.testing.assert_close(rows.buffers[run], module.flat_averages())


def test_runs_are_padded_each_in_its_own_way():
    rows, modules = stack()
    batch, lengths = batch_of(), (6, 2)
    weights = torch.zeros(2, 6, dtype=torch.float64)
    row = torch.empty_like(rows.parameters)
    for run, length in enumerate(lengths):
        weights[run, :length] = 1 / length
    losses = rows.gradient(batch._replace(weights=weights), row)
    for run, length in enumerate(lengths):
        module, these = modules[run], slice(length)
        loss = loss_of(module, batch.inputs[run, these], batch.labels[run, these])
        torch.testing.assert_close(losses[run], loss)
        torch.testing.assert_close(row[run], module.flat_gradient())
        torch.testing.assert_close(rows.buffers[run], module.flat_averages())


@pytest.mark.parametrize("large", [False, True])
def test_initial_values(large):
    network = ResNet(50, 16, large_images=large)
    parameters = network.initialise(generator(0, "parameters"))
    assert parameters.dtype == torch.float32
    assert torch.equal(parameters, network.initialise(generator(0, "parameters")))
    for name, value in network.named_parameters(parameters).items():
        if value.dim() == 4:
            bound = (value.shape[1] * value.shape[2]) ** -0.5
        elif name == "fc.weight" or (name == "fc.bias" and not large):
            bound = 128**-0.5
        else:
            assert (value == (1 if name.endswith("weight") else 0)).all()
            continue
        assert 0.85 * bound < value.abs().max() <= bound
        assert value.std().item() == pytest.approx(bound / 3**0.5, rel=0.25)
    assert not network.initial_buffers(parameters.unsqueeze(0)).any()


def test_moved_columns_are_refused():
    rows, _ = stack(runs=1)
    with pytest.raises(EngramError, match="columns must be None for a ResNet"):
        rows.network.predict(
            rows.parameters, torch.zeros(1, 3, 9, 9), torch.zeros(1, 2), rows.buffers
        )
