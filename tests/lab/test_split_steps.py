"""Steps on the image benchmarks against plain modules, and what the penalties come to on CUB."""

import pytest
import torch
from resnet_oracles import Plain
from split_worlds import build, learn, learned, start
from torch.nn import functional

from engram.lab.protocol import run, specify

pytestmark = pytest.mark.numerical

RATE = 1e-4  # small, for a batch of two under batch norm blows up every rounding
FULL = {"large_images": True, "shortcut_norm": False}


def entropy(module, batch, tasks):
    """The mean of the cross-entropies, each among the outputs of the example's own task."""
    losses = []
    for logits, label in zip(module(batch.inputs[0]), batch.labels[0].tolist(), strict=True):
        (mine,) = (outputs for outputs in tasks if label in outputs)
        losses.append(functional.cross_entropy(logits[mine], torch.tensor(mine.index(label))))
    return torch.stack(losses).mean()


@pytest.mark.usefixtures("split_worlds", "narrow")
def test_a_step_takes_a_pass_over_the_memory_and_then_one_over_the_batch():
    """Both normalise by their own batch and move the running averages, the memory's first."""
    stream = build("split-awa", tasks=3, examples=12)  # a batch of ten and one of two
    method = start(stream, "split-awa", "er", learning_rate=RATE)
    module = Plain.of(method.network, method.parameters[0], method.buffers[0], 850, 2, **FULL)
    tasks = [sorted(set(stream._parts[0][task].test_labels.tolist())) for task in range(3)]
    origins = set()
    for task in range(3):
        for step, batch in learn(method, stream, task):
            module.zero_grad()
            reference = method.bank.reference(step)
            if reference is not None:
                entropy(module, reference, tasks).backward()
                origins.add(frozenset((reference.labels[0] // 50).tolist()))
            entropy(module, batch, tasks).backward()
            with torch.no_grad():
                for value in module.parameters():
                    value -= RATE * value.grad
        torch.testing.assert_close(method.parameters[0], module.flat())
        torch.testing.assert_close(method.buffers[0], module.flat_averages())
    assert origins == {frozenset({0}), frozenset({0, 1})}


@pytest.mark.usefixtures("split_worlds", "flat")
@pytest.mark.parametrize("name", ["ewc", "rwalk"])
def test_a_penalty_that_is_not_refreshed_within_a_task_is_none(name):
    def weights(method, **changes):
        stream = build("split-cub", tasks=3)  # sixty images in a task: thirty steps of two
        return learned(stream, "split-cub", method, 3, batch_size=2, **changes).parameters

    plain = weights("van")
    assert torch.equal(weights(name), plain)
    assert not torch.equal(weights(name, refresh_interval=20), plain)


@pytest.mark.usefixtures("split_worlds", "narrow")
@pytest.mark.parametrize("name", ["split-cifar", "split-cub", "split-awa"])
def test_a_run_from_the_official_folder(name):
    given = {"weights": "none"} if name == "split-cub" else {}
    (outcome,) = run(specify(name, "mega-ii", tasks=2, examples=15, overrides=given), [0])
    assert outcome.failure is None
    assert [len(points) for points in outcome.curve] == [3, 3]  # before two batches, and after
    for after, row in enumerate(outcome.accuracy):
        assert [value is not None for value in row] == [True, after == 1]
        assert all(0 <= value <= 1 for value in row[: after + 1])
