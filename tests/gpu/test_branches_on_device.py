"""On a GPU: work side by side gives what it gives one after the other."""

from collections import defaultdict

import pytest
import torch

from engram.lab.networks import Branches

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

DEVICE = torch.device("cuda", 0)


def piece(start, rounds):
    """A chain of products, each in memory that was just freed."""
    state = start
    for _ in range(rounds):
        state = torch.tanh(state @ start) * 0.5 + start
    return state


def nested(starts, parents):
    """Return the pieces' results, from branches of branches that end at different times."""
    outer, results = Branches(DEVICE), []
    for i, row in enumerate(starts):
        with outer.branch():
            above = torch.cuda.current_stream().cuda_stream
            inner, parts = Branches(DEVICE), []
            for j, start in enumerate(row):
                with inner.branch():
                    here = torch.cuda.current_stream().cuda_stream
                    if here != above:
                        parents[here].add(above)
                    parts.append(piece(start, 1 + (3 * i + 5 * j) % 11))
            inner.join()
            results.append(torch.stack(parts).sum(0))
    outer.join()
    return torch.stack(results)


@pytest.mark.parametrize(("outer", "inner"), [(2, 5), (8, 5), (17, 9)])
def test_more_branches_than_there_are_streams(outer, inner):
    source = torch.Generator("cuda").manual_seed(0)
    starts = 0.1 * torch.randn(outer, inner, 96, 96, device="cuda", generator=source)
    parents = defaultdict(set)
    expected = nested(starts, parents)
    assert not parents  # nothing is captured yet
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = nested(starts, parents)
    assert parents
    assert all(len(above) == 1 for above in parents.values())
    for _ in range(20):
        graph.replay()
        torch.testing.assert_close(results, expected, rtol=1e-5, atol=1e-6)
