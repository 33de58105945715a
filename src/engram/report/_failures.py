"""What is said of seeds that have no numbers."""

from __future__ import annotations

from collections.abc import Sequence

from engram.report._summary import Summary


def told_failures(summary: Summary) -> str | None:
    """Return how many seeds diverged, and why, without a full stop; None if none did.

    ``all 5 seeds diverged: the weights became non-finite in task 2 of 17 (learning_rate 0.1)``
    """
    seeds_by_reason: dict[str, list[int]] = {}
    for seed, reason in summary.failures.items():
        seeds_by_reason.setdefault(_inside_a_sentence(reason), []).append(seed)
    if not seeds_by_reason:
        return None
    total, failed = len(summary.rows), len(summary.failures)
    some = f"all {total} seeds" if failed == total > 1 else f"{failed} of {count_seeds(total)}"
    if len(seeds_by_reason) == 1 and failed == total:
        return f"{some} diverged: {next(iter(seeds_by_reason))}"
    parts = [f"{_named(seeds)}: {reason}" for reason, seeds in seeds_by_reason.items()]
    return f"{some} diverged: {'; '.join(parts)}"


def count_seeds(count: int) -> str:
    """Return ``1 seed``, ``2 seeds``."""
    return "1 seed" if count == 1 else f"{count} seeds"


def told_seeds(summary: Summary) -> str:
    """Return how many seeds a line is of: ``5``, or ``5 (1 failed)``."""
    failed = len(summary.failures)
    return f"{len(summary.rows)}" + (f" ({failed} failed)" if failed else "")


def _named(seeds: Sequence[int]) -> str:
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"


def _inside_a_sentence(sentence: str) -> str:
    first = sentence[:1].lower() if sentence[1:2].islower() else sentence[:1]
    return first + sentence[1:].removesuffix(".")
