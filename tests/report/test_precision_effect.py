"""Lines are paired in one precision, and a method with itself across precisions and networks."""

from dataclasses import replace

import numpy as np
import paper_world
import pytest
from paper_world import DEFAULTS, average_accuracy, make_row, told
from scipy import stats

from engram.app.report import summarise
from engram.app.runs import address, write_lines
from engram.errors import EngramError
from engram.lab import protocol
from tools.docs.pages import write_pages
from tools.docs.results_page import results_page

LOW = "bfloat16"
NETWORK = {"name": "Own", "source": "sha256:0123456789abcdef", "arguments": {"width": 8}}
PAIR = ("mega-ii", "a-gem")
TF32, BFLOAT16 = (0.66, 0.64, 0.65, 0.69), (0.65, 0.645, 0.63, 0.68)


def runs(method, finals, **settings):
    return [make_row(method, s, "split-cifar", final=f, **settings) for s, f in enumerate(finals)]


@pytest.fixture
def rows():
    """Two methods in the usual precision, which no setting tells, and in a lower one."""
    return [
        *runs("a-gem", TF32),
        *runs("mega-ii", TF32),
        *runs("mega-ii", BFLOAT16, precision=LOW, seconds=1.0),
        *runs("a-gem", TF32[::-1], precision=LOW),
    ]


def cells(text, ending):
    """The lines of the table whose head ends so, cell by cell."""
    (table,) = [part for part in text.split("\n\n") if part.splitlines()[0].endswith(ending)]
    lines = [line.strip("|").split("|") for line in table.splitlines()]
    return [[cell.strip() for cell in line] for line in lines if not line[0].startswith("---")][1:]


def pairs(rows, *compared):
    lines = cells(results_page(rows, DEFAULTS, "c", compared), "| won : lost |")
    return {line[0]: line[1:] for line in lines}


def test_two_methods_are_paired_in_the_same_precision_and_one_with_itself_in_another(rows):
    assert [*pairs(rows, PAIR)] == [
        "mega-ii minus a-gem",
        f"mega-ii precision={LOW} minus a-gem precision={LOW}",
        f"a-gem precision={LOW} minus a-gem",
        f"mega-ii precision={LOW} minus mega-ii",
    ]


def test_the_difference_between_precisions_is_seed_by_seed(rows):
    seeds, mean, std, t, p, won = pairs(rows)[f"mega-ii precision={LOW} minus mega-ii"]
    expected = stats.ttest_rel(BFLOAT16, TF32)
    apart = 100 * np.subtract(BFLOAT16, TF32)
    assert (seeds, won) == ("4", "1 : 3")
    assert float(mean) == pytest.approx(apart.mean(), abs=1e-3)
    assert float(std) == pytest.approx(apart.std(ddof=1), abs=1e-3)
    assert (float(t), float(p)) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    "other",
    [{"learning_rate": 1.0}, {"data": "other"}, {"tasks": 3}, {"split": "tuning"}],
    ids=lambda other: next(iter(other)),
)
def test_what_differs_in_more_than_the_precision_is_not_compared(other):
    rows = [*runs("mega-ii", TF32), *runs("mega-ii", BFLOAT16, precision=LOW, **other)]
    assert " minus " not in results_page(rows, DEFAULTS, "c")


def test_methods_that_no_precision_joins_are_refused_as_a_pair():
    rows = [*runs("mega-ii", TF32), *runs("a-gem", TF32, precision=LOW)]
    with pytest.raises(EngramError, match="both 'mega-ii' and 'a-gem' in one precision"):
        results_page(rows, DEFAULTS, "c", [PAIR])


@pytest.fixture
def block(tmp_path, monkeypatch):
    """What a page shows of some rows."""
    for name in ("specify", "settings_help"):
        monkeypatch.setattr(protocol, name, getattr(paper_world, name))

    def make(rows, table="precision"):
        (tmp_path / "docs").mkdir()
        page = tmp_path / "docs" / "performance.md"
        page.write_text(f'<!-- generated: performance "{table}" -->\n<!-- end -->\n')
        write_lines(rows, tmp_path / "all.jsonl")
        write_pages(tmp_path / "docs", [tmp_path / "all.jsonl"])
        return page.read_text().partition("\n")[2].removesuffix("\n<!-- end -->\n")

    return make


def test_the_page_of_performance_has_a_line_for_each_with_its_receipts(rows, block):
    text = block([*rows, *runs("van", TF32)])
    first, second = cells(text, "| p | seeds |")
    assert [line[0] for line in (first, second)] == [
        "a-gem on split-cifar, 17 tasks of 2,500 examples",
        "mega-ii on split-cifar, 17 tasks of 2,500 examples",
    ]
    usual, lower = rows[4:8], rows[8:12]
    assert second[1:5] == [
        *(LOW, told(lower, "average_accuracy")),
        *("tf32", told(usual, "average_accuracy")),
    ]
    accuracies = [[average_accuracy(row) for row in some] for some in (lower, usual)]
    assert float(second[5]) == pytest.approx(np.mean(np.subtract(*accuracies)), abs=1e-3)
    assert second[5:9] == pairs(rows)[f"mega-ii precision={LOW} minus mega-ii"][1:5]
    assert second[9] == "4"
    receipts = {(line[0].split(" ")[0], line[1]): line[2:] for line in cells(text, "| address |")}
    assert len(receipts) == 4
    addresses = [summary.address for summary in summarise(rows)]
    assert receipts["mega-ii", "tf32"] == ["2.2", "cpu", "2026-01-02", addresses[1]]
    assert receipts["mega-ii", LOW] == ["1.2", "cpu", "2026-01-02", addresses[2]]


def test_it_says_so_where_nothing_was_trained_in_two(rows, block):
    searched = [{"split": "tuning"}, {"split": "tuning", "precision": LOW}]
    tuned = [row for settings in searched for row in runs("mega-ii", TF32, **settings)]
    assert block([*rows[:8], *tuned]) == "Not measured yet."


def with_network(network, method, finals, **settings):
    """Runs with a network in the place of the benchmark's."""
    rows = runs(method, finals, **settings)
    identities = [{**row.identity, "network": network} for row in rows]
    return [
        replace(row, identity=identity, address=address(identity, row.seed))
        for row, identity in zip(rows, identities, strict=True)
    ]


def test_networks_of_ones_own_stand_beside_the_benchmark_s_seed_by_seed(rows, block):
    own = with_network(NETWORK, "mega-ii", BFLOAT16, seconds=3.0)
    alone = with_network(NETWORK, "mega-ii", BFLOAT16, learning_rate=1.0)
    text = block([*rows, *own, *alone, *runs("van", TF32)], "own networks")
    (line,) = cells(text, "| p | seeds |")
    assert line[:5] == [
        "mega-ii on split-cifar, 17 tasks of 2,500 examples",
        *("Own@01234567,width=8", told(own, "average_accuracy")),
        *("the benchmark's", told(rows[4:8], "average_accuracy")),
    ]
    apart = 100 * np.subtract(BFLOAT16, TF32)
    assert float(line[5]) == pytest.approx(apart.mean(), abs=1e-3)
    assert line[9] == "4"
    receipts = [line[1:] for line in cells(text, "| address |")]
    addresses = [summary.address for summary in summarise([*rows, *own])]
    assert receipts == [
        ["Own@01234567,width=8", "cpu", "2026-01-02", addresses[-1]],
        ["the benchmark's", "cpu", "2026-01-02", addresses[1]],
    ]


def test_it_says_so_where_no_network_was_brought(rows, block):
    assert block(rows, "own networks") == "Not measured yet."


def test_it_is_among_the_tables_that_a_page_may_ask_for(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("<!-- generated: performance x -->\n<!-- end -->\n")
    write_lines([], tmp_path / "all.jsonl")
    with pytest.raises(EngramError, match=r"There is no table of measured speed 'x'.*precision"):
        write_pages(tmp_path / "docs", [tmp_path / "all.jsonl"])
