"""Pages that people write hold generated blocks: these follow their sources, the rest stays."""

import shutil

import pytest

from engram.app.report import PaperDefaults, summarise
from engram.app.runs import write_lines
from engram.errors import EngramError
from tools.docs.__main__ import main
from tools.docs.blocks import excerpt, fill
from tools.docs.pages import write_pages
from tools.docs.results_page import GENERATED

SOURCE = '''\
"""A module."""

def outside(x):
    return x


class Rule:
    """What it promises."""

    @property
    def weight(self):  # noqa: ANN201
        """Return it.

        In two paragraphs.
        """
        first = 1
        # why
        second = first + 1  # noqa: X
        return second
'''


def block(words, content=""):
    return f"<!-- generated: {words} -->\n{content}<!-- end -->\n"


@pytest.fixture
def checkout(tmp_path, make_row):
    """A checkout with one file of results, one of code, and a page with a block of each kind."""
    write_lines(
        [make_row(m, s, tasks=17) for m in ("van", "mega-i") for s in (0, 1)],
        tmp_path / "results" / "all.jsonl",
    )
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "rule.py").write_text(SOURCE)
    (tmp_path / "docs" / "methods").mkdir(parents=True)
    words = ("results mega-i", "settings permuted-mnist mega-i", "code src/rule.py Rule.weight")
    text = "# MEGA-I\r\n\n" + "\n".join(map(block, words)) + "\nBy hand,  to the end"
    (tmp_path / "docs" / "methods" / "mega-i.md").write_bytes(text.encode())
    (tmp_path / "docs" / "index.md").write_text(block("index"))
    return tmp_path


@pytest.fixture
def make_docs(checkout, laboratory):  # noqa: ARG001
    files = [checkout / "results" / "all.jsonl"]
    return lambda: write_pages(checkout / "docs", files)


def test_a_block_is_made_anew_and_nothing_else_is_touched():
    before = "one\r\n<!-- generated: a 'b c' -->\nold\nolder\n<!-- end -->\n\ttwo \u2028 three"
    after = "one\r\n<!-- generated: a 'b c' -->\na|b c\n<!-- end -->\n\ttwo \u2028 three"
    assert fill(before, "|".join) == after
    assert fill(after, "|".join) == after


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a\n<!-- generated: x -->\n", "line 2: a block begins that no <!-- end --> ends"),
        ("<!-- generated: x -->\n<!-- generated: y -->\n", "line 2: .* inside that of line 1"),
        ("a\n\n<!-- end -->\n", "line 3: <!-- end --> ends no block"),
        ("<!-- generated x -->\n", "line 1: a marker is .* not '<!-- generated x -->'"),
        (" <!-- generated: x -->\n", "line 1: a marker is"),
        ("<!-- Generated: x -->\n", "line 1: a marker is"),
        ("<!-- generated: -->\n", "line 1: a marker is"),
        ("<!-- generated: x 'y -->\n<!-- end -->", "line 1: a marker is"),
        ("<!-- generated: x -->\n<!--end-->\n", "line 2: a marker is"),
    ],
)
def test_a_marker_that_is_none_is_refused(text, sentence):
    with pytest.raises(EngramError, match=sentence):
        fill(text, "".join)


def test_other_comments_are_left_alone():
    text = "<!-- a note -->\n<!-- the end -->\nsee `<!-- generated: x -->`\n"
    assert fill(text, "".join) == text


def test_code_is_quoted_by_name_without_its_docstring():
    assert excerpt(SOURCE, "outside") == "def outside(x):\n    return x"
    assert excerpt(SOURCE, "Rule.weight").splitlines() == [
        "@property",
        "def weight(self):",
        "    first = 1",
        "    # why",
        "    second = first + 1",
        "    return second",
    ]
    part = excerpt(SOURCE, "Rule.weight", "# why", "second")
    assert part == "# why\nsecond = first + 1"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("inside",), "there is no 'inside'"),
        (("Rule.inside",), "there is no 'Rule.inside'"),
        (("outside", "third", ""), "no line of 'outside' begins with 'third'"),
        (("Rule.weight", "second", "first"), "no line of 'Rule.weight' begins with 'first'"),
    ],
)
def test_code_that_has_gone_is_told(arguments, sentence):
    with pytest.raises(EngramError, match=sentence):
        excerpt(SOURCE, *arguments)


def test_a_methods_page_has_its_numbers_its_settings_and_its_code(checkout, make_docs):
    make_docs()
    lines = (checkout / "docs" / "methods" / "mega-i.md").read_text().splitlines()
    where = "[permuted-mnist, 17 tasks of 55,000 examples](../results/all.md)"
    assert f"**mega-i** on {where}:" in lines
    assert "| average accuracy % | 35.77 ± 0.50 | 91.10 ± 0.08 | -55.33 |" in lines
    assert any(line.startswith("2 seeds, 1.5 seconds each on cpu, 20") for line in lines)
    assert "    engram run permuted-mnist mega-i --seeds 2" in lines
    assert "| epsilon | 0.001 | what epsilon does |" in lines
    assert r"| learning\_rate | 0.1 | what learning\_rate does |" in lines
    assert "`Rule.weight` in [src/rule.py](../../src/rule.py):" in lines
    assert "    second = first + 1" in lines


def test_every_file_of_results_has_a_page_and_its_place_in_the_index(checkout, make_docs):
    make_docs()
    page = (checkout / "docs" / "results" / "all.md").read_text()
    assert page.startswith(GENERATED)
    assert "    make docs" in page.splitlines()
    index = (checkout / "docs" / "index.md").read_text()
    link = "[permuted-mnist, 17 tasks of 55,000 examples](results/all.md)"
    assert f"- {link}: van, mega-i" in index.splitlines()


def test_what_the_paper_claims_is_compared_where_there_are_seeds(checkout, make_row, make_docs):
    rows = [make_row(m, s) for m in ("mega-ii", "mega-i") for s in (0, 1)]
    lines = checkout / "results" / "all.jsonl"
    lines.unlink()
    write_lines([*rows, make_row("a-gem")], lines)
    make_docs()
    page = (checkout / "docs" / "results" / "all.md").read_text()
    assert "| mega-ii minus mega-i | 2 | +" not in page
    assert "| mega-ii minus mega-i | 2 | -0.100 |" in page
    assert "minus a-gem" not in page


def test_a_command_tells_whatever_is_not_as_usual_today(make_row, laboratory):
    (summary,) = summarise([make_row("mega-i", 4, tasks=20, epsilon=1e-5)])
    assert PaperDefaults(laboratory.specify).command(summary) == (
        "engram run permuted-mnist mega-i --seeds 5 --tasks 20 --set epsilon=1e-05"
    )


def test_the_readme_beside_the_folder_is_filled_too(checkout, make_docs):
    page = checkout / "README.md"
    page.write_text(f"# Mine\n{block('index')}")
    assert page in make_docs()
    link = "[permuted-mnist, 17 tasks of 55,000 examples](docs/results/all.md)"
    assert page.read_text() == f"# Mine\n{block('index', f'- {link}: van, mega-i' + chr(10))}"
    assert make_docs() == []


def test_what_a_run_prints_is_shown_as_a_terminal_shows_it(checkout, make_docs):
    page = checkout / "docs" / "shown.md"
    page.write_text(block("printed all"))
    make_docs()
    _, fence, title, head, rule, *lines, plot, end, _ = page.read_text().splitlines()
    assert (fence, end) == ("```text", "```")
    assert title == "permuted-mnist, 17 tasks of 55,000 examples"
    assert " ".join(head.split()).startswith("method average accuracy % forgetting LCA seeds")
    assert set(rule.strip()) == {"─"}
    assert [line.split()[0] for line in lines] == ["van", "mega-i"]
    assert "35.77±0.50" in lines[1]
    assert plot.startswith("Plot: engram-results/permuted-mnist-17x55000-")


def test_settings_of_two_methods_stand_side_by_side(checkout, make_docs):
    page = checkout / "docs" / "both.md"
    page.write_text(block("settings permuted-mnist van mega-i"))
    make_docs()
    lines = page.read_text().splitlines()
    assert "| setting | van | mega-i | meaning |" in lines
    assert r"| learning\_rate | 0.1 | 0.1 | what learning\_rate does |" in lines
    assert "| epsilon |  | 0.001 | what epsilon does |" in lines


def test_runs_that_all_diverged_have_no_table(checkout, make_row, make_docs):
    lines = checkout / "results" / "all.jsonl"
    lines.unlink()
    write_lines([make_row("mega-i", fault="diverge")], lines)
    make_docs()
    page = (checkout / "docs" / "methods" / "mega-i.md").read_text()
    assert "1 of 1 seed diverged: the weights became non-finite." in page
    assert "average accuracy" not in page


def test_a_method_without_results_says_so(checkout, make_docs):
    page = checkout / "docs" / "methods" / "new.md"
    page.write_text(block("results new"))
    make_docs()
    assert page.read_text() == block("results new", "There are no results yet.\n")


def test_docs_made_twice_are_the_same_and_only_blocks_have_changed(checkout, make_docs):
    page = checkout / "docs" / "methods" / "mega-i.md"
    before = page.read_bytes()
    names = sorted(path.name for path in make_docs())
    assert names == ["all.md", "index.md", "mega-i.md"]
    assert page.read_bytes().startswith(b"# MEGA-I\r\n\n<!-- generated: results mega-i -->\n")
    assert page.read_bytes().endswith(b"<!-- end -->\n\nBy hand,  to the end")
    assert make_docs() == []
    assert fill(page.read_bytes().decode(), lambda _: "") == fill(before.decode(), lambda _: "")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("result van", "There is no generated block 'result' (did you mean 'results'?)"),
        ("results", "a block of this kind is 'results METHOD...', not 'results'"),
        ("settings van", "a block of this kind is 'settings BENCHMARK METHOD...'"),
        ("settings permuted-mnist vam", "There is no method 'vam' (did you mean 'van'?)"),
        ("code src/gone.py f", "'src/gone.py' cannot be read"),
        ("code src/rule.py gone", "in 'src/rule.py' there is no 'gone'"),
        ("index all", "a block of this kind is 'index', not 'index all'"),
        ("printed al", "There is no file of results 'al' (did you mean 'all'?)"),
        ("evidence mega-i", "'mega-i' was not run on split-cifar as the paper has it"),
    ],
)
@pytest.mark.usefixtures("laboratory")
def test_a_block_that_cannot_be_made_gets_one_sentence_and_nothing_is_written(
    checkout, capsys, words, sentence
):
    (checkout / "docs" / "bad.md").write_text(f"\n{block(words)}")
    before = {path: path.read_bytes() for path in checkout.rglob("*.*")}
    docs, results = str(checkout / "docs"), str(checkout / "results" / "all.jsonl")
    assert main([results, "--pages", docs]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"'{docs}/bad.md', line 2: ")
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert {path: path.read_bytes() for path in checkout.rglob("*.*")} == before


def test_a_page_that_somebody_wrote_is_not_overwritten(checkout, make_docs):
    page = checkout / "docs" / "results" / "all.md"
    page.parent.mkdir()
    page.write_text("mine")
    with pytest.raises(EngramError, match=r"all\.md' was not generated"):
        make_docs()
    assert page.read_text() == "mine"


@pytest.mark.usefixtures("laboratory")
def test_comparisons_of_ones_own_go_with_a_page_of_ones_own(checkout, capsys):
    results = str(checkout / "results" / "all.jsonl")
    given = [results, "--pages", str(checkout / "docs"), "--compare", "mega-i:van"]
    assert main(given) == 2
    assert "--compare goes with --out" in capsys.readouterr().err


def test_the_folder_may_be_anywhere(checkout, make_docs, tmp_path_factory, monkeypatch):
    make_docs()
    other = tmp_path_factory.mktemp("other") / "copy"
    shutil.copytree(checkout, other)
    monkeypatch.chdir(other)
    assert main(["results/all.jsonl", "--pages", "docs"]) == 0
    for path in (checkout / "docs").rglob("*.md"):
        assert (other / path.relative_to(checkout)).read_bytes() == path.read_bytes()
