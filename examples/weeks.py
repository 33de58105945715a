"""Customers who stay or leave, week by week: the tables of docs/production.md.

    python examples/weeks.py

It writes week1.csv to week5.csv, and bad.csv: a fourth week in which the answers were shuffled.
"""

import csv
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path

import numpy as np

Columns = dict[str, list[str]]


def week(
    number: int,
    rows: int = 600,
    *,
    seed: int | None = None,
    business: bool = False,
    shuffled: bool = False,
    customers: int = 200,
) -> Columns:
    """Return the columns of one week; usage and calls rise from week to week.

    With ``business`` there are customers of a new plan, and a new class that only they have. With
    ``shuffled`` the answers are those of others.
    """
    draw = np.random.default_rng(number if seed is None else seed)
    region = draw.choice(["north", "south", "west"], rows)
    plan = draw.choice(["basic", "extra"], rows)
    usage = draw.normal(50 + 2 * number, 12, rows)
    calls = draw.poisson(2 + 0.1 * number, rows)
    score = 1.2 * (calls - 2) - (usage - 52) / 6 + (region == "south") + 2 * (plan == "extra")
    left = np.where(score > 1, "leave", "stay").astype(object)
    if business:
        plan = np.where(draw.random(rows) < 0.2, "business", plan)
        left[plan == "business"] = "upgrade"
        usage[plan == "business"] += 120
    if shuffled:
        draw.shuffle(left)
    monday = date(2026, 1, 5) + timedelta(weeks=number - 1)
    days = [(monday + timedelta(days=day % 7)).isoformat() for day in range(rows)]
    return {
        "date": days,
        "customer": [str(each) for each in draw.integers(1, customers, rows)],
        "region": region.tolist(),
        "plan": plan.tolist(),
        "usage": [f"{each:.2f}" for each in usage],
        "calls": [str(each) for each in calls],
        "left": left.tolist(),
    }


def write(path: Path, columns: Mapping[str, Sequence[str]]) -> str:
    """Write columns as CSV; return the path as a source."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return f"table:{path}"


def write_all(folder: Path, rows: int = 2_000) -> None:
    """Write the weeks of the story; from the third on there is a new plan, and a new class."""
    for number in range(1, 6):
        write(folder / f"week{number}.csv", week(number, rows, business=number > 2))
    write(folder / "bad.csv", week(4, rows, seed=40, business=True, shuffled=True))


if __name__ == "__main__":
    write_all(Path.cwd())
