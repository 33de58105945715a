"""What stands in for the paper's data is named so wherever its numbers are shown."""

from io import StringIO

import pytest
from page_reader import report
from paper_world import DEFAULTS, PAPER, make_row, told
from rich.console import Console

from engram.app.report import StandIn, Verdict, judge, results_table, save_plot, summarise
from engram.app.report.html import write_report
from tools.docs.reproduction import reproduction
from tools.docs.results_page import results_page

BIRDS, ANIMALS = f"other-{'b' * 64}", f"other-{'a' * 64}"
LABEL = "birds of CUB, pretrained on TinyImageNet"
NOTE = "The network was pretrained on TinyImageNet (top-1 47 %), not on ImageNet."
KNOWN = {
    BIRDS: StandIn("split-cub", LABEL, NOTE),
    ANIMALS: StandIn("split-awa", "50 classes of TinyImageNet", "Not AwA2."),
}
TITLE = f"Split CUB (stand-in: {LABEL}), 17 tasks of 300 examples, precision=bfloat16"
ELEVEN = [*PAPER["results"]["split-cub"], "mega-i-equal", "mega-ii-unbalanced", "multi-task"]
OFF = (-0.002, 0.001, 0.001)


@pytest.fixture(autouse=True)
def known(list_stand_ins):
    list_stand_ins(KNOWN)


def birds(method, final, seeds=3, data=BIRDS, **settings):
    return [
        make_row(
            method,
            seed,
            "split-cub",
            final=final + OFF[seed],
            data=data,
            command="engram run split-cub mega-ii --set weights=tiny.safetensors",
            **{"precision": "bfloat16", **settings},
        )
        for seed in range(seeds)
    ]


@pytest.fixture
def rows():
    """All eleven methods on the stand-in: the paper's order but for MEGA, the best of all ours."""
    return [row for place, method in enumerate(ELEVEN) for row in birds(method, 0.3 + place / 50)]


def page(part, rows):
    return reproduction(part, summarise(rows), DEFAULTS)


def test_lines_on_other_data_stay_apart_and_are_told_apart():
    real, other = birds("mega-ii", 0.8, data="c" * 64), birds("mega-ii", 0.7, data="d" * 64)
    rows = [*real, *other, *birds("mega-ii", 0.6)]
    summaries = summarise(rows)
    assert [each.stand_in and each.stand_in.label for each in summaries] == [None, None, LABEL]
    assert DEFAULTS.labels(summaries[:2]) == [
        "mega-ii precision=bfloat16 data=cccccccccc",
        "mega-ii precision=bfloat16 data=dddddddddd",
    ]
    assert summaries[0].setting == summaries[1].setting != summaries[2].setting
    assert len({each.setting.slug for each in summaries}) == 2
    text = results_page(
        [*rows, *birds("a-gem", 0.5, data="c" * 64)], DEFAULTS, "c", [("mega-ii", "a-gem")]
    )
    assert text.count("minus a-gem") == 1  # that on the same data


def test_a_checksum_stands_in_for_its_own_benchmark_alone():
    elsewhere = make_row("van", 0, "split-awa", data=BIRDS)
    assert summarise([elsewhere])[0].stand_in is None


def test_the_reproduction_has_it_beside_the_papers_with_its_label_and_its_order(rows):
    text = page("split-cub", rows)
    heading, *rest = text.split("\n\n")
    assert heading == f"**Stand-in: {LABEL}**, precision=bfloat16. {NOTE}"
    assert [part.split("|")[2].strip() for part in rest[:3]] == [
        "average accuracy %, stand-in",
        "forgetting, stand-in",
        "LCA, stand-in",
    ]
    lines = {line.split(" | ")[0].lstrip("| "): line.split(" | ") for line in rest[0].splitlines()}
    assert set(ELEVEN) <= set(lines)
    van = [row for row in rows if row.identity["method"] == "van"]
    assert lines["van"][1:3] == [told(van, "average_accuracy"), "53.89 ± 2.00"]
    assert lines["multi-task"][2] == "65.60"
    ours, paper = rest[3].splitlines()[2:]
    assert ours.startswith("| stand-in | multi-task, mega-ii-unbalanced, mega-i-equal, mega-ii, ")
    assert paper == (
        "| paper | mega-ii, mega-i, mega-i-equal, mega-ii-unbalanced, multi-task, a-gem, pi, mas, "
        "rwalk, van, ewc |"
    )
    assert rest[4].startswith("Spearman's rank correlation of both, over 11 methods: 0.")
    assert "not run" not in text


def test_the_real_thing_has_its_own_table_and_comes_first(rows):
    real = birds("mega-ii", 0.8, data="c" * 64, precision="tf32")
    text = page("split-cub", [*rows, *real])
    first, second = text.split("**Stand-in: ")
    assert first.count(f"| {told(real, 'average_accuracy')} | 80.58 ± 1.94 |") == 1
    assert "average accuracy %, ours" in first
    assert "stand-in" not in first
    assert second.startswith(LABEL)


def test_it_is_missing_still(rows):
    lines = page("missing", rows).splitlines()
    assert f"- split-cub: stand-in only ({LABEL})" in lines
    fewer = [row for row in rows if row.identity["method"] not in ("ewc", "multi-task")]
    lines = page("missing", fewer).splitlines()
    assert f"- split-cub: stand-in only ({LABEL}), without ewc, multi-task" in lines
    real = birds("mega-ii", 0.8, data="c" * 64)
    (line,) = [li for li in page("missing", [*rows, *real]).splitlines() if "split-cub" in li]
    assert line.startswith("- split-cub: van, ewc, ")
    assert "mega-ii," not in line


def part_of(rows, beginning):
    claim = next(
        each for each in judge(summarise(rows), DEFAULTS) if each.text.startswith(beginning)
    )
    return claim, claim.parts[0]


def test_claims_say_what_they_were_measured_on_and_the_real_thing_goes_first():
    surpass = "On Split CUB both even surpass"
    rows = [*birds("mega-i", 0.9), *birds("mega-ii", 0.9), *birds("multi-task", 0.5)]
    claim, part = part_of(rows, surpass)
    assert (part.ours.mean, part.where) == (pytest.approx(40), f"Split CUB (stand-in: {LABEL})")
    assert (part.verdict, claim.mark) == (Verdict.HELD, "held, on a stand-in")
    rows += birds("mega-i", 0.6, data="c" * 64)
    assert part_of(rows, surpass)[1].ours.mean == pytest.approx(40)  # no other real one
    rows += birds("multi-task", 0.5, data="c" * 64, seeds=2)
    claim, part = part_of(rows, surpass)
    assert (part.ours.mean, part.where) == (pytest.approx(10), "Split CUB")
    assert claim.mark == "held, in part on a stand-in"


def test_the_table_of_claims_says_so_too(rows):
    text = page("claims", rows)
    assert (
        "| On Split CUB both even surpass multi-task training | not held, on a stand-in |" in text
    )
    assert text.endswith(f"\n\nMeasured on stand-ins: Split CUB (stand-in: {LABEL}).")


def test_a_page_of_results_and_a_terminal_s_table_are_headed_by_it(rows, tmp_path):
    text = results_page(rows, DEFAULTS, "c")
    assert f"# Results: split-cub (stand-in: {LABEL}), 17 tasks of 300 examples" in text
    assert NOTE in text
    both = results_page([*rows, make_row()], DEFAULTS, "c")
    assert f"# Results: split-cub (stand-in: {LABEL}), permuted-mnist\n" in both
    console = Console(width=200, record=True, file=StringIO())
    console.print(results_table(summarise(rows), DEFAULTS))
    shown = " ".join(console.export_text().split())
    assert f"split-cub (stand-in: {LABEL}), 17 tasks" in shown
    assert "80.58±1.94" in shown
    plot = save_plot(summarise(rows), DEFAULTS, tmp_path)
    assert "stand-in-birds-of-cub" in plot.name
    assert "stand-in" in plot.with_suffix(".svg").read_text("utf-8")


def test_the_report_names_it_everywhere(rows):
    found = report(rows)
    assert TITLE in found.headings
    assert f"Split CUB (stand-in: {LABEL}), 17 tasks of 300 examples" in found.headings  # a card
    titles, *lines = found.tables[TITLE][1:]
    assert titles[1:7] == ["stand-in", "paper"] * 3
    assert "Δ" not in "".join(found.pres)
    assert found.tables["Receipts"][0][-1] == "made by"
    assert "stand-in & paper" in found.pres[0]
    assert "stand-in" in found.pres[1].splitlines()[0]
    assert [line[0] for line in lines][-2:] == ["MEGA-II", "MULTI-TASK"]
    assert NOTE in found.words
    assert "Yes: it is ahead in 1 of 1 setting, which is a stand-in, by" in found.words
    assert "On a stand-in only: Split CUB." in found.words
    assert "not in this store yet: Permuted MNIST, Split CIFAR, Split AWA." in found.words
    assert "held, on a stand-in" in found.words
    (slug,) = found.data
    assert slug.startswith("split-cub-stand-in-birds-of-cub-")
    assert ("a", {"href": f"#{slug}"}) in found.tags
    (link,) = [text for text in found.text if text == "Split CUB (stand-in)"]
    assert link


def test_both_stand_beside_each_other_in_the_report(rows):
    pair = [*birds("mega-ii", 0.8, data="c" * 64), *birds("a-gem", 0.7, data="c" * 64)]
    found = report([*rows, *pair])
    first, second = found.data
    assert first == "split-cub-17x300"
    assert second.startswith("split-cub-stand-in-")
    assert "2 of 2 settings, of which 1 on a stand-in, by" in found.words
    assert "yet: Permuted MNIST, Split CIFAR, Split AWA." in found.words


def test_figures_for_papers_are_titled_by_it(rows, tmp_path, quick_figures):
    write_report(rows, DEFAULTS, tmp_path / "report.html")
    assert [title for title, _ in quick_figures] == [TITLE] * 3  # accuracy, LCA, the bars


def test_bars_have_no_diamonds_of_the_papers_which_are_of_other_data(rows, tmp_path, quick_figures):
    real = [*birds("mega-ii", 0.8, data="c" * 64), *birds("a-gem", 0.7, data="c" * 64)]
    for some, diamonds in ((rows, False), (real, True)):
        ((section,), words) = report(some).data.values(), report(some).words
        quick_figures.clear()
        write_report(some, DEFAULTS, tmp_path / "report.html")
        drawn = [series for chart in section["charts"].values() for series in chart["series"]]
        assert any(series["paper"] for series in drawn) == diamonds
        saved = [chart for _, charts in quick_figures for chart in charts]
        assert any(series.paper for chart in saved for series in chart.series) == diamonds
        assert ("A diamond is the paper's number." in words) == diamonds
    assert "80.58 ± 1.94" in str(report(rows).tables)  # the table has them


def test_what_was_typed_is_the_command_where_data_lies_nobody_knows_where():
    (summary,) = summarise(birds("mega-ii", 0.8))
    assert DEFAULTS.command(summary) == summary.commands[0]
    typed = "engram run table:sales.csv van --set target=bought"
    own = make_row(
        "van", benchmark="table-sales-0123456789", examples=9, data="0123456789", command=typed
    )
    assert DEFAULTS.command(*summarise([own])) == typed


def test_the_precision_is_no_setting_of_the_papers_but_is_told():
    usual = [make_row("van", seed, "split-cub", data=BIRDS) for seed in range(2)]
    other = birds("van", 0.6, seeds=3)
    (summary,) = summarise(other)
    assert DEFAULTS.printed(summary, "average_accuracy").mean == 53.89
    assert DEFAULTS.label(summary) == "van precision=bfloat16"
    (strange,) = summarise(birds("van", 0.5, learning_rate=1.0))
    assert DEFAULTS.printed(strange, "average_accuracy") is None
    assert DEFAULTS.distance(summary) < DEFAULTS.distance(strange)
    both = page("split-cub", [*other, *usual])  # the usual one speaks, though it has fewer seeds
    assert f"| van | {told(usual, 'average_accuracy')} | 53.89 ± 2.00 |" in both
