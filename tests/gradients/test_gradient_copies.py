"""A pooled rule never has more than two gradients in memory."""

import pytest
import torch
from gradient_oracles import POOLED
from torch import nn
from torch.profiler import ProfilerActivity, profile

import engram
from engram.rules import MEGA2


def peak_bytes(action):
    """Return the most bytes that tensors took at a time, beyond those there before."""
    cpu = [ProfilerActivity.CPU]
    with profile(activities=cpu, profile_memory=True, acc_events=True) as record:  # or 2.11 warns
        action()
    events = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]
    total = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        total += event.nbytes()
        peak = max(peak, total)
    return peak


@pytest.mark.parametrize("rule", POOLED, ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("parts", [1, 2])
def test_at_most_two_gradients_are_alive(rule, parts):
    model = nn.Sequential(*[nn.Linear(256, 256, bias=False) for _ in range(8)])
    size = sum(parameter.nbytes for parameter in model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mixer = engram.GradientMixer(optimizer, rule)
    inputs = torch.randn(2, 256)

    def step():
        for row in ["memory", "current"]:
            for _ in range(parts):
                mixer.backward(model(inputs).square().mean() / parts, row=row)
        mixer.mix()

    # One layer's worth on top: a pass that accumulates has a layer's gradient beside the row.
    assert 1.9 * size < peak_bytes(step) < (2 + 1 / 8 + 0.05) * size


def test_a_graph_that_no_other_loss_shares_is_freed_by_its_own_pass():
    layers = [nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh()]
    model = nn.Sequential(*layers)  # gradients are the largest in the end, beside what is kept
    parameters, inputs = [*model.parameters()], torch.randn(20_000, 8)

    def losses():
        return [model(inputs + shift).square().mean() for shift in (0, 1)]

    def passes():
        for loss in losses():
            loss.backward()

    def step():
        engram.backward(losses(), parameters, MEGA2())

    floor = peak_bytes(passes)
    assert peak_bytes(step) < 1.01 * floor
    hidden = model[:4](inputs)

    def shared():
        rows = [model[4:](hidden + shift).square().mean() for shift in (0, 1)]
        return engram.backward(rows, parameters, MEGA2())

    assert shared().gram.isfinite().all()
    with pytest.raises(RuntimeError, match="second time"):  # and then it is freed
        hidden.sum().backward()
