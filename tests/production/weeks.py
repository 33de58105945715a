"""Customers who stay or leave, week by week: a table that drifts, and what may befall it."""

import csv

import numpy as np

NAMES = ["date", "customer", "region", "plan", "usage", "calls", "left"]


def week(number, rows=600, *, seed=None, business=False, shuffled=False, customers=200):
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
    days = [f"2026-01-{7 * (number - 1) + 1 + day % 7:02}" for day in range(rows)]
    return {
        "date": days,
        "customer": [str(each) for each in draw.integers(1, customers, rows)],
        "region": region.tolist(),
        "plan": plan.tolist(),
        "usage": [f"{each:.2f}" for each in usage],
        "calls": [str(each) for each in calls],
        "left": left.tolist(),
    }


def write(path, columns):
    """Write columns as CSV; return the path as a source."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return f"table:{path}"
