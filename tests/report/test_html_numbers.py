"""Every number on the page is that of the store, or the paper's beside it."""

import pytest
from page_reader import report
from paper_world import DEFAULTS, PAPER, average_accuracy, learning_area, make_row, told
from scipy import stats

from engram.app.report.html import write_report

METHODS = ("van", "gem", "a-gem", "mega-i", "mega-ii", "multi-task")
METRICS = ("average_accuracy", "forgetting", "lca_10")
TITLE = "Permuted MNIST, 17 tasks of 55,000 examples"


@pytest.fixture
def rows():
    facts = {"memory_bytes": 5_000, "state_bytes": 600}
    return [make_row(method, seed, facts=facts) for method in METHODS for seed in range(3)]


def of(rows, method):
    return [row for row in rows if row.identity["method"] == method]


def printed(method, metric, benchmark="permuted-mnist"):
    if method == "multi-task" and metric == "average_accuracy":
        return {"mean": PAPER["multi_task_average_accuracy"][benchmark], "std": None}
    return PAPER["results"][benchmark].get(method, {}).get(metric)


def test_the_table_has_ours_the_papers_the_difference_and_the_receipts(rows):
    groups, titles, *lines = report(rows).tables[TITLE]
    assert [group for group in groups if group] == [
        "average accuracy %",
        "forgetting",
        "LCA",
        "cost",
    ]
    assert titles == [
        "method",
        *["ours", "paper", "Δ/σ"] * 3,
        "MB",
        "seconds",
        "seeds",
        "device",
        "spec hash",
    ]
    assert [line[0] for line in lines] == ["VAN", "GEM", "A-GEM", "MEGA-I", "MEGA-II", "MULTI-TASK"]
    for line, method in zip(lines, METHODS, strict=True):
        mine = of(rows, method)
        for place, metric in enumerate(METRICS):
            ours, theirs, apart = line[1 + 3 * place : 4 + 3 * place]
            assert ours == told(mine, metric)
            paper, digits = printed(method, metric), 2 if metric == "average_accuracy" else 3
            if paper is None:
                assert (theirs, apart) == ("–", "–")
            elif paper["std"] is None:
                assert (theirs, apart) == (f"{paper['mean']:.{digits}f}", "–")
            else:
                assert theirs == f"{paper['mean']:.{digits}f} ± {paper['std']:.{digits}f}"
                gap = float(ours.split(" ")[0]) - paper["mean"]
                assert float(apart) == pytest.approx(
                    gap / paper["std"], abs=0.06 + 0.6e-3 / paper["std"]
                )
        assert line[10:14] == [f"{(4 * 1000 + 5_000 + 600) / 1e6:.2f}", "2.1", "3", "cpu"]
        assert len(line[14]) == 10


def test_both_copies_of_a_table_have_its_cells(rows):
    page = report(rows)
    latex, markdown = page.pres[:2]
    for line in page.tables[TITLE][2:]:
        assert f"| {' | '.join(line)} |" in markdown.splitlines()
        assert (
            f"{' & '.join(line)} \\\\".replace("±", r"$\pm$").replace("–", "--")
            in latex.splitlines()
        )
    assert markdown.count("paper") == 3
    assert latex.startswith("% \\usepackage{booktabs}\n\\begin{tabular}{lrrrrrrrrrrrrll}")


def test_one_seed_tells_no_spread(tmp_path):
    rows = [make_row("van", 0, tasks=3), *(make_row("gem", seed, tasks=3) for seed in range(2))]
    page = report(rows)
    lines = page.tables["Permuted MNIST, 3 tasks of 55,000 examples"][2:]
    for line, mine in zip(lines, (rows[:1], rows[1:]), strict=True):
        assert line[1:4] == [told(mine, metric) for metric in METRICS]
    assert ["±" in line[1] for line in lines] == [False, True]
    latex, markdown = page.pres[:2]
    assert f"VAN & {' & '.join(lines[0][1:4])} &" in latex
    assert f"| VAN | {' | '.join(lines[0][1:4])} |" in markdown
    for chart in page.data["permuted-mnist-3x55000"]["charts"].values():
        one, two = chart["series"]
        assert set(one["std"]) == {None}
        assert None not in two["std"]
    write_report(rows, DEFAULTS, tmp_path / "page.html")  # and figures for papers can be drawn


def test_figures_hold_the_means_over_the_seeds(rows):
    section = report(rows).data["permuted-mnist-17x55000"]
    assert [line["method"] for line in section["lines"]] == list(METHODS)
    charts = section["charts"]
    series = {METHODS[each["line"]]: each for each in charts["accuracy"]["series"]}
    for task in range(17):
        seen = [
            sum(row.outcome["accuracy"][task][: task + 1]) / (task + 1) for row in of(rows, "gem")
        ]
        assert series["gem"]["mean"][task] == pytest.approx(100 * sum(seen) / 3)
    assert series["multi-task"]["level"]
    assert series["multi-task"]["mean"] == pytest.approx(
        [sum(map(average_accuracy, of(rows, "multi-task"))) / 3]
    )
    learning = {METHODS[each["line"]]: each for each in charts["lca"]["series"]}
    assert "multi-task" not in learning
    for batch in range(11):
        areas = [learning_area(row, batch) for row in of(rows, "mega-ii")]
        assert learning["mega-ii"]["mean"][batch] == pytest.approx(sum(areas) / 3)
    bars = {METHODS[each["line"]]: each for each in charts["average-accuracy"]["series"]}
    assert bars["a-gem"]["paper"] == [89.32, 0.46]
    assert [charts[name]["series"][0]["mean"] for name in ("memory", "seconds")] == [
        [pytest.approx(0.0096)],
        [pytest.approx(2.125)],
    ]


def test_the_answer_says_on_what_by_how_much_how_sure_and_at_what_cost():
    ours, theirs = [0.90, 0.92, 0.915], [0.88, 0.89, 0.90]
    rows = [make_row("mega-ii", seed, final=a, seconds=30) for seed, a in enumerate(ours)]
    rows += [make_row("a-gem", seed, final=a, seconds=15) for seed, a in enumerate(theirs)]
    page = report(rows)
    gains = [100 * (a - b) for a, b in zip(ours, theirs, strict=True)]
    test = stats.ttest_1samp(gains, 0)
    low, high = test.confidence_interval()
    mean = sum(gains) / 3
    assert f"{mean:+.2f} points" in page.words
    assert f"{low:+.2f} to {high:+.2f} points (95 % interval, p = {test.pvalue:.1g})" in page.words
    assert "ahead in 3 of 3 seeds" in page.words
    assert (
        f"{told(rows[:3], 'average_accuracy')} against {told(rows[3:], 'average_accuracy')}"
        in page.words
    )
    assert "30.1 against 15.1 seconds a run (1.99 times, on cpu)" in page.words
    assert "+1.89 points: 91.21 ± 0.10 against 89.32 ± 0.46" in page.words
    assert (
        f"Yes: it is ahead in 1 of 1 setting, by {mean:.2f} points of average accuracy, "
        "at 1.99 times A-GEM's seconds." in page.words
    )
    assert "not in this store yet: Split CIFAR, Split CUB, Split AWA." in page.words


def test_times_on_different_devices_are_not_compared():
    rows = [make_row("mega-ii", seed, device="a GPU", seconds=60) for seed in range(2)]
    rows += [make_row("a-gem", seed, seconds=60) for seed in range(2)]
    words = report(rows).words
    assert "on a GPU and cpu, so not to be compared" in words
    assert "times A-GEM's seconds" not in words
    assert "That cannot be told yet" in report(rows[:2]).words


def test_settings_beyond_the_papers_four_are_answered_in_a_table():
    rows = [
        make_row(method, seed, tasks=tasks, final=final + seed / 100, seconds=60)
        for method, final in (("mega-ii", 0.8), ("a-gem", 0.7))
        for tasks in (2, 3, 4, 5, 6)
        for seed in range(2)
    ]
    page = report(rows)
    assert page.words.count("How sure") == 4 + 1  # the guide has the words too
    (line,) = page.tables["MEGA-II against A-GEM in other settings"][1:]
    assert line == [
        *["Permuted MNIST, 6 tasks of 55,000 examples", "+10.00", "+10.00 to +10.00", "2 of 2"],
        *["80.50 ± 0.50", "70.50 ± 0.50", "1.00 times"],
    ]


def test_a_page_grows_with_its_store():
    rows = [make_row(method, seed) for method in ("a-gem", "mega-ii") for seed in range(2)]
    rows += [make_row("a-gem", split="tuning", tasks=3)]
    small = report(rows)
    assert list(small.data) == ["permuted-mnist-17x55000"]
    more = [
        make_row(row.identity["method"], row.seed, benchmark)
        for benchmark in ("split-awa", "split-cifar", "split-cub")
        for row in rows[:4]
    ]
    few = [make_row("mega-ii", 0, tasks=20, examples=count) for count in (600, 200, 400)]
    large = report(rows + few + more)
    assert list(large.data) == [
        "permuted-mnist-17x55000",
        "split-cifar-17x2500",
        "split-cub-17x300",
        "split-awa-17x1000",
        "permuted-mnist-over-examples-20",
        "permuted-mnist-20x200",
        "permuted-mnist-20x400",
        "permuted-mnist-20x600",
    ]
    assert "Split CIFAR, 17 tasks of 2,500 examples" in large.tables
    assert "Permuted MNIST, 3 tuning tasks of 55,000 examples" in large.tables
    over = large.data["permuted-mnist-over-examples-20"]["charts"]["accuracy"]
    assert over["x"] == ["200", "400", "600"]
    by_count = {row.identity["examples"]: average_accuracy(row) for row in few}
    assert over["series"][0]["mean"] == pytest.approx([by_count[n] for n in (200, 400, 600)])


def test_seeds_that_diverged_are_told_and_not_drawn():
    rows = [make_row("van", seed) for seed in range(2)]
    rows += [make_row("pi", seed, failure="The weights became NaN.") for seed in range(2)]
    rows += [make_row("mer", 0), make_row("mer", 1, failure="The weights became NaN.")]
    page = report(rows)
    lines = {line[0]: line for line in page.tables[TITLE][2:]}
    assert lines["PI"][1] == "–"
    assert lines["MER"][1] == told(rows[4:], "average_accuracy")
    assert [lines[name][-3] for name in ("VAN", "PI", "MER")] == [
        "2",
        "2 (2 failed)",
        "2 (1 failed)",
    ]
    assert "PI: all 2 seeds diverged: the weights became NaN." in page.words
    section = page.data["permuted-mnist-17x55000"]
    drawn = {each["line"] for chart in section["charts"].values() for each in chart["series"]}
    assert [section["lines"][place]["method"] for place in sorted(drawn)] == ["van", "mer"]


def test_lines_with_unusual_settings_are_named_and_switched_off():
    rows = [make_row("mega-i", seed, epsilon=e) for e in (0.1, 0.01) for seed in range(2)]
    rows += [make_row("mega-i", seed) for seed in range(2)]
    page = report(rows)
    assert [line[0] for line in page.tables[TITLE][2:]] == [
        "MEGA-I",
        "MEGA-I epsilon=0.01",
        "MEGA-I epsilon=0.1",
    ]
    lines = page.data["permuted-mnist-17x55000"]["lines"]
    assert [line["shown"] for line in lines] == [True, False, False]
