"""The recipe that makes weights for Split CUB, on a few tiny images."""

import hashlib
import json
import re
import runpy
import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch.nn.functional import cross_entropy

from engram.lab.networks import ResNet
from engram.lab.plan import generator

EXAMPLE = Path(__file__).parents[1] / "examples" / "pretrain.py"
NAMES = runpy.run_path(str(EXAMPLE), run_name="pretrain")
CPU = torch.device("cpu")


def coloured(many, side=16, seed=0):
    """Return noisy images of four colours, and which colour each has."""
    draws = np.random.default_rng(seed)
    labels = np.arange(many) % 4
    colours = np.array([[200, 60, 60], [60, 200, 60], [60, 60, 200], [130, 130, 130]])
    noise = draws.integers(-50, 50, (many, side, side, 3))
    return (colours[labels][:, None, None] + noise).astype(np.uint8), labels


def small(**recipe):
    network = ResNet(4, 4, large_images=True, shortcut_norm=False)
    return NAMES["Pretraining"](network, NAMES["Recipe"](**recipe), CPU)


def test_the_program_trains_the_paper_s_network_and_saves_it(tmp_path, monkeypatch, capsys):
    for split, many in (("train", 8), ("val", 4)):
        images, labels = coloured(many, side=10)
        np.save(tmp_path / f"{split}_images.npy", images)
        np.save(tmp_path / f"{split}_labels.npy", labels)
    weights = tmp_path / "new" / "weights.safetensors"
    command = [str(EXAMPLE), str(tmp_path), str(weights), "--epochs", "1"]
    monkeypatch.setattr(sys, "argv", command)
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    *epochs, last = capsys.readouterr().out.splitlines()
    assert len(epochs) == 1
    printed = re.fullmatch(r"top-1 ([\d.]+)%, sha256 ([0-9a-f]{64})", last)
    assert printed is not None
    assert printed[2] == hashlib.sha256(weights.read_bytes()).hexdigest()
    network = ResNet(4, 64, large_images=True, shortcut_norm=False)
    with safe_open(weights, framework="pt") as file:
        story = json.loads(file.metadata()["pretraining"])
        shapes = {name: tuple(file.get_tensor(name).shape) for name in file.keys()}  # noqa: SIM118
    assert shapes == network.layout.shapes | network.buffer_layout.shapes
    assert story["top_1"] == pytest.approx(float(printed[1]) / 100)
    assert story["recipe"]["epochs"] == 1
    assert story["device"] == "cpu"


@pytest.mark.numerical
def test_what_can_be_learnt_is_learnt():
    training, held_out = (
        [torch.from_numpy(array) for array in coloured(many, seed=many)] for many in (128, 64)
    )
    pretraining = small(epochs=8, batch_size=16, shift=2, learning_rate=0.05)
    assert pretraining.top_1(held_out) < 0.6
    assert pretraining.train(training, held_out) > 0.6


def test_a_limit_of_time_ends_the_training_with_a_small_learning_rate(monkeypatch):
    clock = SimpleNamespace(monotonic=count().__next__)  # a second for every look at it
    monkeypatch.setitem(NAMES["Pretraining"].train.__globals__, "time", clock)
    data = [torch.from_numpy(array) for array in coloured(64)]
    pretraining = small(epochs=1_000_000, batch_size=32, shift=2, limit_seconds=30)
    rates = []
    step = pretraining.step
    pretraining.step = lambda *batch: rates.append(batch[-1]) or step(*batch)
    pretraining.train(data, data)
    assert 15 < len(rates) < 30
    assert max(rates) > 0.35
    assert rates[-1] < 0.01


def test_the_learning_rate_rises_evenly_and_falls_like_a_cosine():
    rate = NAMES["Recipe"]().rate
    assert [rate(share) for share in (0, 0.05, 0.1, 0.2)] == pytest.approx([0, 0.1, 0.2, 0.4])
    fallen = [0.4 * (1 + np.cos(np.pi * share)) / 2 for share in (0.25, 0.5, 1)]
    assert [rate(share) for share in (0.4, 0.6, 1)] == pytest.approx(fallen)


def test_an_image_is_cut_from_its_reflected_surroundings_and_may_be_mirrored():
    images = np.random.default_rng(0).integers(0, 256, (200, 6, 6, 3), dtype=np.uint8)
    source = torch.Generator().manual_seed(0)
    moved = NAMES["shifted"](torch.from_numpy(images), 2, source).numpy()
    found = set()
    for before, after in zip(images, moved, strict=True):
        around = np.pad(before, ((2, 2), (2, 2), (0, 0)), mode="reflect")
        cuts = {
            (down, right, mirrored): around[down : down + 6, right : right + 6][:, ::mirrored]
            for down in range(5)
            for right in range(5)
            for mirrored in (1, -1)
        }
        found |= {how for how, cut in cuts.items() if np.array_equal(cut, after)}
    assert len(found) == 50  # every image is one of its cuts, and every cut occurs


@pytest.mark.numerical
def test_a_step_is_that_of_sgd_without_decay_of_norms_and_biases():
    images, labels = (torch.from_numpy(array) for array in coloured(16))
    pretraining = small()
    network, recipe = pretraining.network, pretraining.recipe
    flat = network.initialise(generator(0, "parameters"))[None]
    assert torch.equal(pretraining.flat, flat)
    assert torch.equal(pretraining.buffers, network.initial_buffers(flat))
    velocity = torch.zeros_like(flat)
    inputs = (
        (images - torch.tensor([103.94, 116.78, 123.68])).permute(0, 3, 1, 2)[None].contiguous()
    )
    decay = torch.zeros_like(flat)
    for name, view in network.named_parameters(decay[0]).items():
        view.fill_(0 if "bn" in name or name.endswith("bias") else 5e-4)
    for _ in range(3):  # each from where the program is: roundings do not add up
        flat, buffers = pretraining.flat.clone(), pretraining.buffers.clone()
        logits, tape = network.forward(flat, inputs, buffers)
        logits.requires_grad_()
        loss = cross_entropy(logits[0], labels, label_smoothing=recipe.label_smoothing)
        (outer,) = torch.autograd.grad(loss, logits)
        gradient = torch.zeros_like(flat)[None]
        network.backward(flat, tape, outer, gradient)
        gradient = gradient[0] + decay * flat
        velocity = 0.9 * velocity + gradient
        flat = flat - 0.1 * (gradient + 0.9 * velocity)
        torch.testing.assert_close(pretraining.step(images, labels, 0.1), loss.detach())
        torch.testing.assert_close(pretraining.flat, flat)
        torch.testing.assert_close(pretraining.buffers, buffers)
