"""The kernel for pixels, played through by Triton's interpreter on a CPU."""

import pytest
import torch

SHAPES = [(1,), (3, 5), (2, 10, 784), (2048,), (2049,), (4, 0, 7)]


@pytest.fixture(scope="module")
def scaled(interpreted):
    return interpreted("engram.kernels.pixels").scaled


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_pixels_are_scaled(scaled, shape):
    pixels = torch.randint(256, shape, dtype=torch.uint8)
    ours = scaled(pixels, 1 / 255)
    assert ours.shape == pixels.shape
    assert torch.equal(ours, pixels.float() * torch.tensor(1 / 255))


def test_pixels_that_do_not_lie_in_a_row(scaled):
    pixels = torch.arange(60, dtype=torch.uint8).view(6, 10)[::2, 1:7]
    assert torch.equal(scaled(pixels, 0.5), pixels.float() * 0.5)
