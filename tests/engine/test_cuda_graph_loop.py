"""Which batches are visited together, with graphs that are played."""

import gc
from contextlib import contextmanager, nullcontext, suppress

import pytest
import torch

from engram.gradients import capture
from engram.lab.benchmarks import Examples
from engram.lab.engine import CudaGraphLoop, cuda_graphs

SIZE = 3


class OnGPU(torch.Tensor):
    """Says that it lies on a GPU."""

    is_cuda = True


class Graph:
    """A recorded visit or several: the steps under whose numbers they were recorded."""

    def __init__(self):
        self.steps = []
        self.replay = lambda: None


class World:
    """Batches to visit, and what was visited: (its number, the number it went by, how)."""

    def __init__(self, monkeypatch, batches, kind, rest=0):
        count = batches * SIZE + rest
        labels = torch.arange(count).repeat(2, 1)
        examples = Examples(labels.unsqueeze(-1).float().as_subclass(OnGPU), labels)
        self.visited, self.recording = [], None
        self.loop = CudaGraphLoop(examples, SIZE, capture=True, kind=kind)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
        monkeypatch.setattr(cuda_graphs, "capturing", self.record)

    def take(self, stop=None):
        """Compute what the loop says; return the number of the next batch."""
        with self.loop.advance(stop) as steps:
            for step in steps:
                self.visit(*step)
        return self.loop.step

    def take_all(self):
        while self.loop.step < len(self.loop):
            self.take(len(self.loop))

    def visit(self, step, inputs, labels, position):
        if self.recording is not None:
            self.recording.steps.append(step)
            return
        number = step if position is None else int(position)
        expected = torch.arange(number * SIZE, number * SIZE + labels.shape[1])
        assert all(mine.equal(expected) for mine in labels)
        assert inputs.as_subclass(torch.Tensor).squeeze(-1).equal(labels.float())
        self.visited.append((number, step, "plain" if position is None else "by position"))

    @contextmanager
    def record(self, graph, device):
        """As a GPU does it: nothing is done, and a replay does all of it."""
        assert device == torch.device("cpu")
        position = self.loop._position
        before, self.recording = position.clone(), graph
        yield
        self.recording = None
        position.copy_(before)

        def replay():
            for step in graph.steps:
                self.visited.append((int(position), step, f"{len(graph.steps)} to a replay"))
                position.add_(1)

        graph.replay = replay


@pytest.mark.parametrize("together", [2, 3, 8])
@pytest.mark.parametrize("rest", [0, 1])
@pytest.mark.parametrize("every", [1, 4, 5])
def test_every_batch_is_visited_once_as_one_of_its_kind(monkeypatch, together, rest, every):
    monkeypatch.setattr(cuda_graphs, "TOGETHER", together)
    monkeypatch.setattr(cuda_graphs, "_LONG", 1)

    def kind(step):
        return step % every == 0

    world = World(monkeypatch, 41, kind, rest)
    world.take_all()
    assert [number for number, _, _ in world.visited] == list(range(41 + rest))
    assert all(kind(number) == kind(step) for number, step, _ in world.visited[:41])
    ways = [way for _, _, way in world.visited]
    assert ways.count("plain") == rest
    assert ways.count("by position") == (2 if every == 1 else 4)
    alike = every if every == 1 else every - 1  # of a kind in a row
    assert (f"{together} to a replay" in ways) == (every == 1 or together <= alike)


def test_a_stop_is_not_passed(monkeypatch):
    monkeypatch.setattr(cuda_graphs, "TOGETHER", 4)
    monkeypatch.setattr(cuda_graphs, "_LONG", 1)
    world = World(monkeypatch, 20, lambda _: None)
    taken = [world.take(step + 1) for step in range(5)]
    assert taken == [1, 2, 3, 4, 5]
    assert world.take() == 6
    assert world.take(9) == 7
    assert world.take(11) == 11
    assert world.take(30) == 15
    assert world.take(20) == 19
    assert world.take(30) == 20
    assert [number for number, _, _ in world.visited] == list(range(20))


def test_those_that_were_visited_before_are_left_out(monkeypatch):
    monkeypatch.setattr(cuda_graphs, "TOGETHER", 4)
    monkeypatch.setattr(cuda_graphs, "_LONG", 1)
    world = World(monkeypatch, 20, lambda _: None)
    world.loop.seek(7)
    world.take_all()
    assert [number for number, _, _ in world.visited] == list(range(7, 20))


def test_few_batches_are_not_worth_recording_several_at_once(monkeypatch):
    world = World(monkeypatch, 40, lambda _: None)
    world.take_all()
    assert {way for _, _, way in world.visited} == {"by position", "1 to a replay"}


@pytest.mark.parametrize("collects", [True, False])
def test_nothing_is_collected_while_a_graph_is_recorded(monkeypatch, collects):
    for name in ("device", "graph"):
        monkeypatch.setattr(torch.cuda, name, lambda *_, **__: nullcontext())
    monkeypatch.setattr(capture, "_stream", lambda _: None)
    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        with suppress(ValueError), capture.capturing(None, None):
            assert not gc.isenabled()
            raise ValueError("spoiled")
        assert gc.isenabled() == collects
    finally:
        (gc.enable if before else gc.disable)()
