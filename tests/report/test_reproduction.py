"""The reproduction page: the paper's numbers beside ours, with receipts, and what is missing."""

import pytest
from paper_world import CLAIMS, DEFAULTS, PAPER, make_row, told

from engram.app.report import summarise
from engram.errors import EngramError
from tools.docs.reproduction import reproduction

METHODS = ("van", "a-gem", "mega-i", "mega-ii", "multi-task")


@pytest.fixture
def rows():
    mine = [make_row(method, seed) for method in METHODS for seed in range(3)]
    other = [make_row("gem", seed, margin=0.0) for seed in range(3)]  # not the paper's own setting
    return [*mine, *other, *(make_row("er", seed) for seed in range(2))]


def page(part, rows):
    return reproduction(part, summarise(rows), DEFAULTS)


def tables(text):
    """The lines of every table, cell by cell, without its head."""
    parts = [part for part in text.split("\n\n") if part.startswith("|")]
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines()[2:]]
        for part in parts
    ]


def test_every_number_of_the_paper_is_there_beside_ours_or_said_not_to_be_run(rows):
    found = tables(page("permuted-mnist", rows))
    for lines, metric in zip(found, ("average_accuracy", "forgetting", "lca_10"), strict=True):
        printed = {
            method: numbers[metric]
            for method, numbers in PAPER["results"]["permuted-mnist"].items()
            if metric in numbers
        }
        by_method = {line[0]: line[1:] for line in lines}
        assert by_method.keys() >= printed.keys()
        for method, number in printed.items():
            ours, paper, apart, seeds, device, address = by_method[method]
            digits = 2 if metric == "average_accuracy" else 3
            assert paper == f"{number['mean']:.{digits}f} ± {number['std']:.{digits}f}"
            mine = [row for row in rows if row.identity["method"] == method]
            if method not in METHODS:
                assert [ours, apart, seeds, device, address] == ["not run", *["–"] * 4]
                continue
            assert ours == told(mine, metric)
            gap = (float(ours.split()[0]) - number["mean"]) / number["std"]
            assert float(apart) == pytest.approx(gap, abs=0.06 + 0.6e-3 / number["std"])
            assert (seeds, device, len(address)) == ("3", "cpu", 10)


def test_the_ablation_and_the_line_of_joint_training_are_there_too(rows):
    accuracy = {line[0]: line[1:] for line in tables(page("permuted-mnist", rows))[0]}
    assert accuracy["mega-i-equal (run as er)"][1] == "90.66 ± 0.09"
    assert accuracy["mega-ii-unbalanced"][:2] == ["not run", "91.15 ± 0.12"]
    assert accuracy["multi-task"][1:3] == ["95.30", "–"]


def test_few_examples_and_many_tasks_have_a_table_for_each_setting(rows):
    few = [make_row("mega-ii", s, tasks=20, examples=400, memory_per_class=6) for s in range(2)]
    more = [make_row("mega-ii", s, tasks=20, examples=400, memory_per_class=25) for s in range(3)]
    less = [make_row("mega-ii", s, tasks=20, examples=600, memory_per_class=25) for s in range(3)]
    text = page("limited-examples", [*rows, *more, *few, *less])
    assert text.count(":\n\n|") == 3
    assert "20 tasks of 400:" in text
    first, second, third = ({line[0]: line[1:] for line in lines} for lines in tables(text))
    # Of both, the one with the memory that the setting has, though it has fewer seeds.
    assert second["mega-ii"][:4] == [told(few, "average_accuracy"), "2.1", "2", "cpu"]
    assert third[r"mega-ii memory\_per\_class=25"][0] == told(less, "average_accuracy")
    assert len(first) == len(second) == 11
    assert {line[0] for line in first.values()} == {"not run"}
    assert len(tables(page("many-tasks", rows))) == 3


def test_k2_has_three_lines(rows):
    facts = {"k2_below_1_percent": 2.0, "theta_1_at_most_theta_2_percent": 98.0}
    facts |= {"cos_theta_1_error": 3e-6, "cos_theta_2_error": 1e-9, "log_k2_histogram": "0: 1"}
    recorded = [make_row("mega-i", s, tasks=20, examples=600, facts=facts) for s in range(2)]
    first, second, third = tables(page("k2", [*rows, *recorded]))[0]
    assert first[:2] == ["20 tasks of 200", "not run"]
    assert second[:6] == [
        "20 tasks of 600",
        "2.00 ± 0.00",
        "3.15",
        "98.00 ± 0.00",
        "3.0e-06",
        "1.0e-09",
    ]
    assert third[:2] == ["20 tasks of 55,000", "not run"]


def test_every_claim_has_its_mark(rows):
    (lines,) = tables(page("claims", rows))
    assert [line[0] for line in lines] == [text.replace("<", "\\<") for text in CLAIMS]
    marks = {"held", "not held", "cannot be told yet", "not held: not settled by the seeds"}
    difference = "not held: no difference larger than "
    assert {line[1] for line in lines if not line[1].startswith(difference)} <= marks
    for line in lines:
        assert sum(int(cell.partition(" ")[0]) for cell in line[2:8]) > 0
        assert (line[8] == "–") == (line[7] == "0")


def test_what_is_missing_is_listed(rows):
    text = page("missing", rows)
    (mnist,) = [line for line in text.splitlines() if line.startswith("- permuted-mnist:")]
    assert mnist == "- permuted-mnist: ewc, mas, rwalk, prog-nn, gem, mega-ii-unbalanced"
    assert "- k2, 20 tasks of 55,000: mega-i" in text.splitlines()
    assert "- 70 tasks of 200: van, ewc" in text


def test_tuning_is_no_part_of_it(rows):
    tuned = [make_row("ewc", seed, split="tuning") for seed in range(2)]
    assert page("missing", [*rows, *tuned]) == page("missing", rows)


def test_a_part_that_is_none_is_refused(rows):
    with pytest.raises(EngramError, match=r"no part of the reproduction 'table'; valid are"):
        page("table", rows)


def test_the_numbers_of_the_paper_are_counted_by_how_ours_compare(rows):
    (lines,) = tables(page("cells", rows))
    mnist, everything = lines[0], lines[-1]
    assert [line[0] for line in lines] == [*PAPER["results"], "all"]
    one_by_one = tables(page("permuted-mnist", rows))
    cells = [line for table in one_by_one for line in table]
    run = [line for line in cells if line[1] != "not run"]
    assert mnist[1:4] == [str(len(cells)), str(len(run)), str(len(run))]
    counted = {"without": 0, "within": 0, "better": 0, "worse": 0}
    for place, table in enumerate(one_by_one):
        for line in table:
            if line[1] == "not run":
                continue
            if line[3] == "–":
                counted["without"] += 1
            elif abs(float(line[3])) <= 2:
                counted["within"] += 1
            else:  # the second table is forgetting
                counted["better" if (float(line[3]) < 0) == (place == 1) else "worse"] += 1
    assert mnist[4:] == [str(each) for each in counted.values()]
    assert everything[2:] == mnist[2:]  # nothing else was run
    assert int(everything[1]) > int(mnist[1])
