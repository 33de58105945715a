"""Vectors of runs begin where a GPU reads fastest, and nothing else is different."""

import pytest
import torch

from engram.lab.engine import Batch, Rows
from engram.lab.networks import MLP, aligned_empty, rounding, stacked
from engram.rules import GEM, MEGA2

NETWORK = MLP((7, 5, 3))


def drawn(runs):
    source = torch.Generator().manual_seed(0)
    return [torch.randn(NETWORK.size, generator=source) for _ in range(runs)]


@pytest.mark.parametrize("length", [1, 31, 32, 33, 269_322])
def test_every_vector_begins_at_128_bytes(length):
    vectors = aligned_empty(torch.empty(0), 3, 2, length)
    assert vectors.shape == (3, 2, length)
    starts = {vectors[i, j].data_ptr() - vectors.data_ptr() for i in range(3) for j in range(2)}
    assert len(starts) == 6
    assert all(start % 128 == 0 for start in starts)
    assert aligned_empty(torch.empty(0, dtype=torch.float64), 2, length).dtype == torch.float64


def test_stacked_vectors_are_the_vectors():
    vectors = stacked(drawn(3), "cpu")
    assert torch.equal(vectors, torch.stack(drawn(3)))
    assert vectors[1].data_ptr() - vectors[0].data_ptr() == 128 * -(-4 * NETWORK.size // 128)


def batch(runs, size, groups=1):
    source = torch.Generator().manual_seed(size)
    inputs = torch.rand(runs, size, 7, generator=source)
    return Batch(inputs, torch.randint(3, (runs, size), generator=source), groups=groups)


@pytest.mark.parametrize(("rule", "groups"), [(MEGA2(), 1), (GEM(), 4)])
def test_steps_are_the_same_wherever_vectors_begin(rule, groups):
    parameters = [torch.stack(drawn(3)), stacked(drawn(3), "cpu")]
    for each in parameters:
        rows = Rows(NETWORK, each)
        for _ in range(3):
            rows.step(rule, 0.1, batch(3, 4), batch(3, 8, groups))
    torch.testing.assert_close(*parameters, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("tf32", [True, False])
@pytest.mark.parametrize("groups", [1, 2])
def test_tf32_is_for_the_passes_alone(tf32, groups, monkeypatch):
    """The dot products and the mixture of gradients keep all bits."""
    seen = []

    def spied(name):
        plain = getattr(torch, name)

        def multiply(*given, **options):
            seen.append((name, torch.backends.cuda.matmul.allow_tf32))
            return plain(*given, **options)

        return multiply

    network = MLP((7, 5, 3), tf32=tf32)
    rows = Rows(network, stacked(drawn(2), "cpu"))
    for name in ("bmm", "baddbmm"):
        monkeypatch.setattr(torch, name, spied(name))
    losses, gradients = rows.of(batch(2, 4), batch(2, 8, groups))
    network.predict(rows.parameters, batch(2, 4).inputs, None)
    assert {told for _, told in seen} == {tf32}
    seen.clear()
    rows.step(MEGA2(), 0.1, batch(2, 4), batch(2, 8))
    assert seen[-1] == ("bmm", False)  # the Gram matrix; the mixture is a method's, in place
    assert not torch.backends.cuda.matmul.allow_tf32
    assert losses.isfinite().all()
    assert gradients.isfinite().all()


def test_rounding_ends_with_an_error_too():
    with pytest.raises(ZeroDivisionError), rounding(tf32=True):
        1 // int(not torch.backends.cuda.matmul.allow_tf32)
    assert not torch.backends.cuda.matmul.allow_tf32
