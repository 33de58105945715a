"""On a GPU pixels are multiplied by 1/255, as in every result that was made on one."""

import pytest
import torch

from engram.lab.benchmarks import PermutedMnist

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_pixels():
    pixels = torch.arange(256, dtype=torch.uint8, device="cuda").expand(5, 10, 256)
    ours = PermutedMnist([0], tasks=1, examples=1).normalise(pixels)
    torch.testing.assert_close(ours.cpu(), pixels.cpu().float() / 255)
    assert torch.equal(ours, pixels.float() * torch.tensor(1 / 255, device="cuda"))
