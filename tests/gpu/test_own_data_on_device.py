"""On a GPU: augmented images and a head that grows, in captured steps as in plain ones."""

import numpy as np
import pytest
import torch

from engram.lab.benchmarks import benchmark, from_tensors
from engram.lab.benchmarks.augmentation import Augmentation, AugmentationSettings
from engram.lab.engine import cuda_graphs
from engram.lab.protocol import benchmark_session, specify

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_a_gpu_draws_what_a_cpu_does():
    settings, given = AugmentationSettings(flip=True, crop=3), torch.randn(2, 50, 3, 17, 13)
    one, other = (Augmentation(settings, [0, 1], torch.device(kind)) for kind in ("cpu", "cuda"))
    for task in (0, 3):
        one.begin_task(task)
        other.begin_task(task)
        for _ in range(4):
            assert torch.equal(one(given), other(given.cuda()).cpu())


def pictures():
    source = np.random.default_rng(0)
    tasks = [(source.random((80, 3, 16, 16), np.float32), np.arange(80) % 4) for _ in range(2)]
    from_tensors(tasks, name="gpu-pictures")
    given = {"flip": "true", "crop": "2", "batch_size": "4", "memory_per_class": "5"}
    return specify("gpu-pictures", "er", overrides=given)


def one_long_stream():
    source = np.random.default_rng(0)
    tasks = [
        (source.random((80, 6), np.float32), source.integers(0, 2 + task, 80)) for task in range(3)
    ]
    from_tensors(tasks, name="gpu-stream")
    given = {"boundaries": "none", "memory": "reservoir", "batch_size": "4"}
    return specify("gpu-stream", "er", overrides=given)


def end_of(spec, seeds):
    """Return the weights that a run ends with, and what its stream has to know."""
    stream = benchmark(spec.benchmark).build(
        seeds, spec.tasks, spec.examples, settings=spec.stream_settings(), device="cuda"
    )
    with benchmark_session(spec, stream, device="cuda", deterministic=True) as held:
        loop, step = held.last_task(spec.examples), 0
        while step < len(loop):
            step = held.take(step, len(loop))
        return [held.method.parameters.clone(), *stream.state_dict().values()]


@pytest.mark.parametrize(("subject", "seeds"), [(pictures, [0]), (one_long_stream, [0, 1])])
def test_captured_steps_end_with_the_bits_of_plain_ones(subject, seeds, monkeypatch):
    spec, replays, replay = subject(), [], torch.cuda.CUDAGraph.replay

    def counted(graph):
        replays.append(graph)
        return replay(graph)

    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", counted)
    captured = end_of(spec, seeds)
    assert replays
    monkeypatch.setattr(cuda_graphs, "WARM_UP", 10**9)
    replays.clear()
    plain = end_of(spec, seeds)
    assert not replays
    for one, other in zip(captured, plain, strict=True):
        assert torch.equal(one, other)
