"""On a GPU: replayed work is the plain work, bit for bit, and does not wait for the host."""

import gc
import os

import numpy as np
import pytest
import torch

from engram.gradients import capturing
from engram.lab.benchmarks import benchmark, from_tensors
from engram.lab.engine import CudaGraphFunction
from engram.lab.protocol import benchmark_session, specify

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read before the GPU is first used

SEEDS = [0, 1]


class Tally:
    """Adds up what it is given, as integers, which tell every call apart."""

    def __init__(self):
        self.total = torch.zeros(2, 3, dtype=torch.int64, device="cuda")
        self.calls = 0  # of Python's: replays are none

    def add(self, new, factor):
        self.calls += 1
        self.total.mul_(2).add_((new * factor).sum(1))
        return self.total[:, 0] + 1


def given(call):
    """Return what call number ``call`` is given: of two kinds in turn, and not contiguous."""
    width = 4 + call % 2
    numbers = torch.arange(2 * 3 * width * 2, device="cuda").view(2, 3, width, 2) + call
    return numbers[..., 0].transpose(1, 2), torch.full((1,), call, device="cuda")


def test_what_is_done_in_place_and_what_is_returned():
    plain, counted = Tally(), Tally()
    replayed = CudaGraphFunction(counted.add)
    results = [(plain.add(*given(call)), replayed(*given(call))) for call in range(10)]
    # Looked at in the end: no later replay has written over an earlier result.
    assert all(torch.equal(mine, ours) for mine, ours in results)
    assert torch.equal(plain.total, counted.total)
    assert counted.calls == 2 * 3  # of each kind two plain calls and the recording


def test_what_was_recorded_is_kept_until_it_is_forgotten():
    counted = Tally()
    replayed = CudaGraphFunction(counted.add)
    for _ in range(4):
        replayed(*given(0))
    counted.total = torch.ones_like(counted.total)
    replayed.forget()
    expected = Tally()
    expected.total = torch.ones_like(counted.total)
    for call in range(0, 10, 2):
        assert torch.equal(replayed(*given(call)), expected.add(*given(call)))
    assert torch.equal(counted.total, expected.total)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
def test_work_is_replayed_on_the_gpu_that_it_is_on(device):
    """Whichever GPU is in use, and whichever was the first to record."""
    total = torch.zeros(3, device=device)
    replayed = CudaGraphFunction(lambda new: total.add_(new).clone())
    seen = [replayed(torch.full((3,), float(i), device=device)).tolist() for i in range(6)]
    assert seen == [[value] * 3 for value in (0.0, 1.0, 3.0, 6.0, 10.0, 15.0)]


def mnist(algorithm):
    few = {"draws": "3", "batches": "2", "memory_size": "20", "algorithm": algorithm}
    return specify("permuted-mnist", "mer", tasks=2, examples=30, overrides=few)


def with_marked_outputs(algorithm):
    """Return a spec of tasks each of which brings a class, so that other outputs compete."""
    source = np.random.default_rng(0)
    tasks = [
        (
            torch.from_numpy(source.random((40, 12), np.float32)),
            torch.from_numpy(source.integers(0, 2 + task, 40)),
        )
        for task in range(4)
    ]
    from_tensors(tasks, name="growing")
    few = {"draws": "3", "batches": "2", "memory_size": "20", "algorithm": algorithm}
    return specify("growing", "mer", tasks=4, examples=30, overrides=few)


def end_of(spec, watch=lambda take, step: take(step), *, deterministic=True):
    """Return the weights and the table that a run of a spec ends with."""
    stream = benchmark(spec.benchmark).build(
        SEEDS, spec.tasks, spec.examples, settings=spec.stream_settings(), device="cuda"
    )
    with benchmark_session(spec, stream, device="cuda", deterministic=deterministic) as held:
        for step in range(len(held.last_task(spec.examples))):
            watch(held.take, step)
        return [held.method.parameters, *held.method.memory.store.columns.values()]


@pytest.mark.parametrize("algorithm", ["one-batch", "batches"])
@pytest.mark.parametrize("subject", [mnist, with_marked_outputs])
def test_mer_ends_with_the_bits_of_plain_calls(subject, algorithm, monkeypatch):
    replays, replay = [], torch.cuda.CUDAGraph.replay

    def counted(graph):
        replays.append(graph)
        replay(graph)

    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", counted)
    replayed = end_of(subject(algorithm))
    assert len(replays) > 20
    monkeypatch.setattr(CudaGraphFunction, "__call__", lambda self, *given: self._function(*given))
    replays.clear()
    plain = end_of(subject(algorithm))
    assert not replays
    assert all(map(torch.equal, replayed, plain))


@pytest.mark.parametrize("algorithm", ["one-batch", "batches"])
def test_no_replayed_example_waits_for_the_host(algorithm):
    def watched(take, step):
        torch.cuda.set_sync_debug_mode("error")
        try:
            take(step)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    # The graph is recorded in the first task, which is not watched: recording synchronises.
    end_of(mnist(algorithm), watched, deterministic=False)


def recorded(work):
    graph = torch.cuda.CUDAGraph()
    with capturing(graph, torch.device("cuda", torch.cuda.current_device())):
        work()
    return graph


def test_a_graph_that_nobody_has_any_more_does_not_spoil_the_next():
    total = torch.zeros(1, device="cuda")
    forgotten = [recorded(lambda: total.add_(1))]
    forgotten.append(forgotten)  # its end is the collector's to find
    del forgotten

    def work():
        for _ in range(10):
            total.add_(1)
            [[] for _ in range(1000)]  # the collector comes when there is much that is new

    before = gc.get_threshold()
    gc.set_threshold(100, 1, 1)
    try:
        graph = recorded(work)
    finally:
        gc.set_threshold(*before)
    total.zero_()
    graph.replay()
    assert total.item() == 10
