"""One step may span devices: a model in two parts, or a memory on the host."""

import pytest
import torch
from gradient_oracles import POOLED, examples, loss_on, network, sgd
from torch import nn

import engram
from engram.errors import EngramError
from engram.memory import Memory, Reservoir, TensorStorage
from engram.rules import MEGA2

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class InTwoParts(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = network()
        self.layers[2].cuda()

    def forward(self, inputs):
        hidden = self.layers[1](self.layers[0](inputs))
        return self.layers[2](hidden.cuda())


@pytest.mark.parametrize("rule", POOLED, ids=lambda rule: type(rule).__name__)
def test_a_model_in_two_parts_takes_the_step_of_the_whole(rule):
    whole, parts = network(), InTwoParts()
    for model, device in [(whole, "cpu"), (parts, "cuda")]:
        optimizer = sgd(model)
        mixer = engram.GradientMixer(optimizer, rule)
        for row, seed in [("memory", 1), ("current", 2)]:
            inputs, classes = examples(seed, 8)
            mixer.backward(loss_on(model, (inputs, classes.to(device))), row=row)
        mixer.mix()
        optimizer.step()
    for own, other in zip(parts.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(own.cpu(), other)


def test_a_memory_on_the_host_serves_a_model_on_the_device():
    model = network().cuda()
    memory = Memory(Reservoir(20), TensorStorage("cpu"))
    learner = engram.Learner(model, sgd(model), MEGA2(), memory)
    for seed in range(3):
        inputs, classes = examples(seed, 8)
        mix = learner.observe(inputs.cuda(), classes.cuda(), task=seed)
    assert mix.weights.device.type == "cuda"
    assert memory.sample(1).batch[0].device.type == "cpu"


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_losses_on_two_devices_are_refused_and_neither_is_harmed():
    weight = nn.Parameter(torch.ones(3, device="cuda:0"))
    mixer = engram.GradientMixer(torch.optim.SGD([weight], lr=0.1), MEGA2())
    mixer.backward(weight.square().sum())
    mixer.backward(weight.sum().to("cuda:1"), row="memory")
    with pytest.raises((EngramError, RuntimeError)):
        mixer.mix()
    assert weight.square().sum().item() == 3
