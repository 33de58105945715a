"""The kernels for rows in a tensor for each parameter, played through by Triton's interpreter."""

import math

import pytest
import torch
from torch import nn

import engram
from engram.rules import AGEM, MEGA1, MEGA2, Current, Equal

SIZES = [5, 4096, 9001, 1]


@pytest.fixture(scope="module")
def kernels(interpreted):
    return interpreted("engram.kernels.rows")


def made(count, dtype=torch.float32, missing=()):
    """Return rows of gradients; in each one parameter may be missing."""
    source = torch.Generator().manual_seed(count)
    rows = [[torch.randn(size, generator=source).to(dtype) for size in SIZES] for _ in range(count)]
    for row, parameter in missing:
        rows[row][parameter] = None
    return rows


def table(kernels, rows):
    addresses = [[0 if each is None else each.data_ptr() for each in row] for row in rows]
    pieces = [
        (number, start, size)
        for number, size in enumerate(SIZES)
        for start in range(0, size, kernels.PIECE)
    ]
    pieces = torch.tensor(pieces).T.contiguous()
    dtype = next(each.dtype for each in rows[0] if each is not None)
    return kernels.Scattered(torch.tensor(addresses), pieces, dtype, aligned=False)


def whole(rows):
    """Return the rows as one matrix in float64."""
    parts = [
        [torch.zeros(size) if each is None else each for each, size in zip(row, SIZES, strict=True)]
        for row in rows
    ]
    return torch.stack([torch.cat([each.double() for each in row]) for row in parts])


@pytest.mark.parametrize("programs", [2048, 2])
@pytest.mark.parametrize(("count", "missing"), [(1, ()), (2, ()), (2, ((0, 1), (1, 3)))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_numbers_and_mixture_are_those_of_the_whole_rows(
    kernels, count, dtype, missing, programs, monkeypatch
):
    monkeypatch.setattr(kernels, "_MOST_PROGRAMS", programs)
    rows = made(count, dtype, missing)
    exact, given = whole(rows), table(kernels, rows)
    values = [torch.tensor(2.5), torch.tensor(1.5)][:count]
    losses, gram, mark = kernels.compare_scattered(given, values, products=True)
    assert losses.tolist() == [2.5, 1.5][:count]
    torch.testing.assert_close(gram.double(), exact @ exact.T, rtol=1e-5, atol=1e-2)
    assert torch.equal(gram, gram.T)
    weights, flag = torch.tensor([0.3, 0.7])[:count].contiguous(), torch.zeros(())
    kernels.mix_scattered(given, losses, weights, (mark, flag), compares_losses=True, look=True)
    assert (mark.item(), flag.item()) == (0, 0)
    tolerance = {torch.float32: 1e-6, torch.bfloat16: 1e-2}[dtype]
    columns = zip(*rows, strict=True)
    held = torch.cat([next(each for each in column if each is not None) for column in columns])
    found, expected = held.double(), weights.double() @ exact
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("weights", "losses", "element", "compares", "look", "bad"),
    [
        ([0.3, 0.7], [1.0, 1.0], None, True, True, False),
        ([0.3, math.nan], [1.0, 1.0], None, True, False, True),
        ([math.inf, 0.7], [1.0, 1.0], None, False, False, True),
        ([0.3, 0.7], [1.0, -1.0], None, True, False, True),
        ([0.3, 0.7], [-1.0, 1.0], None, False, False, False),
        ([0.3, 0.7], [1.0, 1.0], math.inf, True, True, True),
        ([0.3, 0.7], [1.0, 1.0], math.nan, True, True, True),
        ([0.3, 0.7], [1.0, 1.0], math.nan, True, False, False),
        ([0.0, 1.0], [1.0, 1.0], math.inf, True, True, True),
    ],
)
def test_what_marks_a_step(kernels, weights, losses, element, compares, look, bad):
    rows = made(2)
    if element is not None:
        rows[0][2][9000] = element
    numbers = torch.tensor(losses), torch.tensor(weights)
    for before in (0.0, 1.0):  # what was bad before stays so
        mark, flag = torch.tensor(0, dtype=torch.uint8), torch.tensor(before)
        given = table(kernels, rows)
        kernels.mix_scattered(given, *numbers, (mark, flag), compares_losses=compares, look=look)
        assert (bool(mark), bool(flag)) == (bad, bad or before == 1)
    kernels.mix_scattered(given, *numbers, None, compares_losses=compares, look=look)


class Heads(nn.Module):
    """Convolutions in another order of memory, and a head for each row."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        self.heads = nn.ModuleList([nn.Linear(16, 3), nn.Linear(16, 3)])

    def forward(self, inputs, head):
        return self.heads[head](self.body(inputs).relu().flatten(1)).square().mean()


@pytest.mark.parametrize(
    "rule", [Current(), Equal(), AGEM(), MEGA1(), MEGA2()], ids=lambda rule: type(rule).__name__
)
def test_a_mixed_step_by_kernels_is_that_of_float64(kernels, rule, monkeypatch):
    assert kernels
    monkeypatch.setattr("engram.gradients.mixing.on_host", lambda _: False)
    monkeypatch.setattr(
        "engram.gradients.scattered.triton_works", lambda e: e.dtype is torch.float32
    )
    monkeypatch.setattr("engram.gradients.scattered._stream_in_use", lambda _: 0)
    found = []
    for dtype in (torch.float32, torch.float64):
        model = Heads().to(dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
        mixer = engram.GradientMixer(optimizer, rule)
        inputs = torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(1)).to(dtype)
        inputs = inputs.contiguous(memory_format=torch.channels_last)
        for _ in range(2):
            if rule.reference != "none":
                mixer.backward(model(-inputs, 1), row="memory")
            mixer.backward(model(inputs, 0))
            mix = mixer.mix()
            optimizer.step()
        mixer.settle()
        found.append([mix.losses, mix.weights, *(each.detach() for each in model.parameters())])
    for ours, exact in zip(*found, strict=True):
        torch.testing.assert_close(ours.double(), exact, rtol=1e-5, atol=1e-6)
