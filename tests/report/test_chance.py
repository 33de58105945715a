"""What a guess would have is told of one's own data, wherever its results are."""

import paper_world
import pytest
from page_reader import report
from paper_world import DEFAULTS, make_row

from engram.app.report import majority_baseline, summarise
from engram.app.runs import Store
from engram.lab import protocol
from tools.docs.results_page import results_page

TOLD = "Always saying the most frequent class would have 62.50 % average accuracy."
BY_TASK = "Always saying the most frequent class of each task would have 80.00 % average accuracy."


def own(seed, percent, **options):
    facts = {"guess_percent": percent}
    return make_row("van", seed, "table-sales-0123456789", examples=9, facts=facts, **options)


@pytest.fixture
def rows():
    """Two kinds of heads, and a seed that diverged."""
    failed = own(1, 62.5, heads="shared", failure="The weights became NaN.")
    return [own(0, 62.5, heads="shared"), failed, own(0, 80, heads="by-task")]


def test_each_guess_is_told_once(rows):
    assert majority_baseline(summarise(rows)) == [TOLD, BY_TASK]
    assert majority_baseline(summarise(rows[1:2])) == [TOLD]


def test_every_place_that_shows_the_results_tells_it(rows, tmp_path, engram, monkeypatch):
    lines = results_page(rows, DEFAULTS, "c").splitlines()
    assert lines.count(TOLD) == lines.count(BY_TASK) == 1
    assert report(rows).words.count(TOLD) == 1
    with Store(tmp_path / "store.sqlite") as store:
        store.add(rows)
    monkeypatch.setattr(protocol, "specify", paper_world.specify)
    out = engram("results", "--store", tmp_path / "store.sqlite").out
    assert out.splitlines()[-2:] == [TOLD, BY_TASK]


def test_nothing_is_told_where_nothing_is_known():
    assert majority_baseline(summarise([make_row("van"), make_row("gem")])) == []
