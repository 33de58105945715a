"""Captured steps where there is no GPU: the same steps, and what cannot be captured."""

import pytest
import torch
from gradient_oracles import examples, loss_on, network, sgd
from torch.amp import GradScaler

import engram
from engram.errors import EngramError
from engram.rules import MEGA2


def test_on_a_cpu_a_captured_step_is_taken_as_it_is():
    trained = []
    for capture in (False, True):
        model = network()
        optimizer = sgd(model)
        mixer = engram.GradientMixer(optimizer, MEGA2())

        def step(inputs, classes, *, past, model=model, mixer=mixer, optimizer=optimizer):
            mixer.backward(loss_on(model, (past, classes)), row="memory")
            mixer.backward(loss_on(model, (inputs, classes)))
            mix = mixer.mix()
            optimizer.step()
            return mix.weights

        taken = mixer.capture(step) if capture else step
        weights = [taken(*examples(n, 8), past=examples(9, 8)[0]) for n in range(6)]
        trained.append([*weights, *model.parameters()])
    for own, other in zip(*trained, strict=True):
        assert torch.equal(own, other)


def test_what_cannot_be_captured_is_refused():
    model = network()
    mixer = engram.GradientMixer(sgd(model), MEGA2())
    with pytest.raises(EngramError, match="step must be a function of tensors, not 3"):
        mixer.capture(3)
    with pytest.raises(EngramError, match="its argument 1 is "):
        mixer.capture(lambda *_: None)(torch.ones(1), [1])
    with pytest.raises(EngramError, match="its argument 'mask' is None"):
        mixer.capture(lambda *_: None)(torch.ones(1), mask=None)
    scaled = engram.GradientMixer(sgd(model), MEGA2(), scaler=GradScaler("cpu"))
    with pytest.raises(EngramError, match="GradScaler cannot be captured"):
        scaled.capture(lambda *_: None)
