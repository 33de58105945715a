"""No number in the documentation without a receipt: its hash is among the committed results."""

import json
import re
from importlib import resources
from pathlib import Path

import pytest

from engram.app.report import summarise
from engram.app.runs import read_lines

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
PAPER = json.loads(resources.files("engram.app.paper").joinpath("numbers.json").read_text())
NUMBER = re.compile(r"-?\d+\.\d+ ± \d+\.\d+")
HASH = re.compile(r"(?:address |\| )([0-9a-f]{10})\b(?! [^|])")  # told, or a cell of a table
METRICS = {"average_accuracy": 2, "forgetting": 3, "lca_10": 3}
# What other papers and their notebooks print, told with its source where it stands.
ELSEWHERE = {"89.1 ± 0.14", "90.30 ± 0.15", "89.5 ± 0.48"}


def told(mean, std, digits):
    return f"{mean:.{digits}f} ± {std:.{digits}f}"


def papers_numbers(node):
    """Every number with a spread that the paper prints, in the digits of either measure."""
    if not isinstance(node, dict):
        return set()
    if set(node) == {"mean", "std"}:
        return {told(node["mean"], node["std"], digits) for digits in (2, 3)}
    return set().union(*map(papers_numbers, node.values())) if node else set()


def receipts(files):
    """For each hash of committed results the numbers that it stands for."""
    held = [read_lines(file) for file in files]
    known = {}
    everything = [row for rows in held for row in rows]
    for some in [*held, everything]:
        for summary in summarise(some):
            numbers = known.setdefault(summary.address, set())
            for metric, digits in METRICS.items():
                statistic = summary.statistic(metric)
                if statistic is not None and statistic.std is not None:  # several seeds
                    numbers.add(told(statistic.mean, statistic.std, digits))
            numbers |= facts(summary)
    return known


def facts(summary):
    """What runs have recorded in percent, over the seeds."""
    names = ("k2_below_1_percent", "theta_1_at_most_theta_2_percent")
    found = set()
    for name in names:
        recorded = [row.outcome["facts"] for row in summary.rows]
        values = [each[name] for each in recorded if name in each]
        if values:
            mean = sum(values) / len(values)
            std = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
            found.add(told(mean, std, 2))
    return found


def without_receipt(text, known):
    """Return the hashes of a page that nobody has, and its numbers that no hash on it stands for.

    Blocks of code are examples of what a terminal shows, and no results.
    """
    text = re.sub(r"(?ms)^```.*?^```$", "", text)
    hashes = set(HASH.findall(text))
    good = papers_numbers(PAPER) | ELSEWHERE
    good = good.union(*(known[name] for name in hashes & set(known)))
    return sorted(hashes - set(known)) + [each for each in NUMBER.findall(text) if each not in good]


@pytest.fixture(scope="module")
def known():
    return receipts(sorted((ROOT / "results").glob("*.jsonl")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_number_has_its_receipt(page, known):
    assert without_receipt(page.read_text("utf-8"), known) == []


def test_the_front_pages_numbers_have_theirs_on_the_pages_it_links_to(known):
    text = (ROOT / "README.md").read_text("utf-8")
    linked = re.findall(r"\]\((docs/results/[^)]+\.md)\)", text)
    beside = "\n".join((ROOT / link).read_text("utf-8") for link in linked)
    assert NUMBER.search(text)
    assert without_receipt(f"{text}\n{beside}", known) == []


def test_pages_with_results_have_both(known):
    text = (ROOT / "docs" / "reproduction.md").read_text("utf-8")
    assert len(NUMBER.findall(text)) > 50
    assert len(set(HASH.findall(text)) & set(known)) > 10


def test_a_number_or_a_hash_that_was_made_up_is_refused(known):
    address, numbers = next(item for item in known.items() if item[1])
    number = sorted(numbers)[-1]
    line = f"| van | {number} | 5 | cpu | {address} |\n"
    assert without_receipt(line, known) == []
    other = number.replace(number[0], str((int(number[0]) + 1) % 10), 1)
    assert without_receipt(line.replace(number, other), known) == [other]
    assert without_receipt(line.replace(address, "0123456789"), known) == ["0123456789", number]
    assert without_receipt(f"MEGA-II reaches {number} %.", known) == [number]
    assert without_receipt("The paper has 91.21 ± 0.10.", known) == []
