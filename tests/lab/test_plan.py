"""Draws depend on seed, purpose and position alone."""

import numpy as np
import pytest
from scipy import stats

from engram.lab.plan import generator, subsets


def test_a_draw_does_not_depend_on_draws_before_it():
    first = generator(1, "order", 5).random(4)
    generator(1, "order", 4).random(100)
    assert (generator(1, "order", 5).random(4) == first).all()


@pytest.mark.parametrize("other", [(2, "order", 5), (1, "permutation", 5), (1, "order", 6)])
def test_every_part_of_the_key_counts(other):
    assert (generator(*other).random(4) != generator(1, "order", 5).random(4)).all()


@pytest.mark.parametrize(("rows", "count", "size"), [(700, 8, 9), (3, 256, 257), (1, 1, 1000)])
def test_subsets_are_without_replacement(rows, count, size):
    drawn = subsets(generator(0, "test"), rows, count, size)
    assert drawn.shape == (rows, count)
    assert all(len(set(row)) == count for row in drawn.tolist())
    assert drawn.min() >= 0
    assert drawn.max() < size


def test_subsets_take_everything_in_order_where_there_is_no_more():
    assert (subsets(generator(0, "test"), 2, 5, 3) == np.arange(3)).all()


def test_every_subset_is_equally_likely():
    drawn = subsets(generator(0, "test"), 30_000, 2, 4)
    _, counts = np.unique(np.sort(drawn, 1) @ [4, 1], return_counts=True)
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 0.01


def test_subsets_are_the_beginnings_of_shuffles():
    """One by one, as Fisher and Yates shuffle: results in stores depend on these very draws."""
    jumps = generator(0, "test").random((600, 5)) * np.arange(9, 4, -1)
    for drawn, steps in zip(subsets(generator(0, "test"), 600, 5, 9), jumps, strict=True):
        cards = list(range(9))
        for place, jump in enumerate(steps.astype(int)):
            other = place + jump
            cards[place], cards[other] = cards[other], cards[place]
        assert drawn.tolist() == cards[:5]
