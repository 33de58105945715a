"""Which stream work beside other work goes to, on GPUs that are played."""

from collections import defaultdict
from contextlib import contextmanager
from itertools import cycle

import pytest
import torch

from engram.gradients import capture
from engram.lab.networks import Branches
from engram.lab.networks import gpu as branches

CPU, FIRST, SECOND = torch.device("cpu"), torch.device("cuda", 0), torch.device("cuda", 1)


class Stream:
    """A stream of a GPU; all GPUs number theirs alike. It knows whom it has waited for."""

    def __init__(self, device, number):
        self.device, self.number, self.waited = device, number, []

    def __eq__(self, other):
        return (self.device, self.number) == (other.device, other.number)

    def __hash__(self):
        return hash((self.device, self.number))

    def wait_stream(self, other):
        self.waited.append(other)


class GPUs:
    """Stands in for torch.cuda: 32 streams of each GPU, given in turn, and a stream in use."""

    def __init__(self):
        self.pools, self.in_use = {}, {}
        for device in (FIRST, SECOND):
            self.pools[device] = cycle([Stream(device, number) for number in range(32)])
            self.in_use[device] = Stream(device, 100)
        self.capturing = True

    def give(self, device):
        return next(self.pools[device])

    @contextmanager
    def use(self, stream):
        before, self.in_use[stream.device] = self.in_use[stream.device], stream
        yield
        self.in_use[stream.device] = before


@pytest.fixture
def gpus(monkeypatch):
    played = GPUs()
    monkeypatch.setattr(torch.cuda, "Stream", played.give)
    monkeypatch.setattr(torch.cuda, "stream", played.use)
    monkeypatch.setattr(torch.cuda, "current_stream", played.in_use.get)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: played.capturing)
    monkeypatch.setattr(branches, "_taken", set())
    for found in (branches._stream, capture._stream):
        found.cache_clear()
    yield played
    for found in (branches._stream, capture._stream):
        found.cache_clear()


def nested(gpus, device, outer, inner, parents):
    """Go through branches of branches, and note whose branch every stream is."""
    top, branches, used = gpus.in_use[device], Branches(device), set()
    for _ in range(outer):
        with branches.branch():
            here, parts, parts_used = gpus.in_use[device], Branches(device), set()
            used |= {here} - {top}
            for _ in range(inner):
                with parts.branch():
                    parts_used |= {gpus.in_use[device]} - {here}
            parts.join()
            assert parts_used <= {*here.waited}
            for stream in parts_used:
                parents[stream].add(here)
    branches.join()
    assert used <= {*top.waited}
    for stream in used:
        parents[stream].add(top)


@pytest.mark.parametrize("size", [(2, 5), (8, 5), (17, 9)])
def test_a_stream_has_one_parent_and_no_stream_is_left_idle(gpus, size):
    parents = defaultdict(set)
    for _ in range(3):  # captures
        nested(gpus, FIRST, *size, parents)
    assert all(len(above) == 1 for above in parents.values())
    assert len(parents) == min(32, (1 + min(size[1], 8)) * min(size[0], 8))


def test_nor_is_one_left_idle_where_others_ask_for_streams_too(gpus):
    parents = defaultdict(set)
    for number in range(8):
        gpus.in_use[FIRST] = Stream(FIRST, 200 + number)
        branches = Branches(FIRST)
        for _ in range(8):
            gpus.give(FIRST)
            with branches.branch():
                parents[gpus.in_use[FIRST]].add(number)
    own = {stream: above for stream, above in parents.items() if stream.number < 100}
    assert len(own) == 32
    assert all(len(above) == 1 for above in own.values())


def test_streams_of_two_gpus_have_nothing_to_do_with_each_other(gpus):
    parents = defaultdict(set)
    for device in (FIRST, SECOND):
        nested(gpus, device, 8, 8, parents)
    assert len(parents) == 2 * 32


@pytest.mark.parametrize("device", [CPU, FIRST])
def test_elsewhere_and_without_a_capture_pieces_come_one_after_the_other(gpus, device):
    gpus.capturing = device == CPU
    branches, top = Branches(device), dict(gpus.in_use)
    with branches.branch():
        assert gpus.in_use == top
    branches.join()
    assert not top[FIRST].waited


def test_work_is_recorded_on_a_stream_of_its_own_gpu(gpus, monkeypatch):
    used = []

    @contextmanager
    def noted(*given, stream=None):
        used.append(given[0] if stream is None else (given[0], stream))
        yield

    monkeypatch.setattr(torch.cuda, "device", noted)
    monkeypatch.setattr(torch.cuda, "graph", noted)
    for device in (FIRST, SECOND, FIRST):
        with capture.capturing("a graph", device):
            pass
    streams = [stream for _, stream in used[1::2]]
    assert used[::2] == [stream.device for stream in streams] == [FIRST, SECOND, FIRST]
    assert streams[0] is streams[2]
    assert gpus.give(FIRST) != streams[0]
