"""The kernel of a loss, played through by Triton's interpreter on a CPU."""

import pytest
import torch

from engram.lab.engine import Batch, cross_entropy


@pytest.fixture(scope="module")
def entropies(interpreted):
    return interpreted("engram.kernels.rows").entropies


@pytest.mark.parametrize(
    ("size", "groups", "classes"),
    [(10, 1, 2), (256, 1, 10), (12, 3, 10), (1, 1, 200), (40, 2, 200), (5, 1, 1), (3, 1, 4096)],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy(entropies, size, groups, classes, weighted):
    logits, labels = 5 * torch.randn(2, size, classes), torch.randint(classes, (2, size))
    weights = torch.rand(2, size) if weighted else None
    losses, gradient = cross_entropy(logits.double(), Batch(logits, labels, weights, groups))
    ours, at_logits = entropies(logits, labels, weights, groups)
    torch.testing.assert_close(ours.double(), losses, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(at_logits.double(), gradient, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_trouble_in_the_logits_too(entropies, bad):
    logits, labels = torch.randn(2, 10, 10), torch.randint(10, (2, 10))
    logits[1, 3, 4] = bad
    losses, gradient = entropies(logits, labels, None, 1)
    assert losses.isfinite().flatten().tolist() == [True, False]
    assert gradient[0].isfinite().all()


def test_labels_may_be_of_any_integers_and_logits_lie_anywhere(entropies):
    logits, labels = torch.randn(10, 12, 2).permute(2, 1, 0), torch.randint(10, (12, 2)).T
    expected = entropies(logits.contiguous(), labels.contiguous(), None, 3)
    for ours, same in zip(entropies(logits, labels.int(), None, 3), expected, strict=True):
        assert torch.equal(ours, same)
