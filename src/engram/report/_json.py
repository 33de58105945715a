"""Summaries as JSON, in the units of the paper's tables."""

from __future__ import annotations

import dataclasses
from typing import Any

from engram.report._measures import METRICS
from engram.report._summary import Summary


def as_json(summary: Summary) -> dict[str, Any]:
    """Return one entry of ``results``; ``failures`` is there only where a seed has failed."""
    numbers = {metric.name: summary.statistic(metric.name) for metric in METRICS}
    entry = {
        "method": summary.method,
        **{
            name: None if number is None else dataclasses.asdict(number)
            for name, number in numbers.items()
        },
        "seeds": len(summary.rows),
        "seconds": summary.seconds,
        "device": summary.device,
    }
    return {**entry, "failures": summary.failures} if summary.failures else entry
