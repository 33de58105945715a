"""The conformance kit: the promises that the laboratory builds on, checked for one method."""

from __future__ import annotations

from collections.abc import Callable

import torch

from engram.errors import EngramError, shown
from engram.lab.methods import Entry, MethodSettings, method_entry
from engram.lab.settings import Scalar
from engram.testing import checks
from engram.testing.practice import Subject

_BATCH_SIZE = 4
_CHECKS: dict[str, Callable[[Subject], None]] = {
    "settings": checks.settings,
    "corners": checks.corners,
    "seeded": checks.seeded,
    "predictions": checks.predictions,
    "stacked": checks.stacked,
    "varied": checks.varied,
    "one pass": checks.one_pass,
    "resumed": checks.resumed,
    "budget": checks.budget,
    "settled": checks.settled,
    "captured": checks.captured,
}
_CLAIMS = {"settled": "settled", "captured": "capturable"}  # checked only where they are made


@torch.no_grad()
def check_method(method: str | Entry, **settings: Scalar) -> list[str]:
    """Check a method, registered or not, on tasks of a few examples; return the checks done.

    A promise that is not kept raises an AssertionError that says which one and where. Give
    ``settings`` where the defaults would hide something: an interval longer than the kit's tasks
    (of 14, 3, 9 and 10 examples, in batches of 4), a memory that they do not fill. "settled" and
    "captured" are left out for a method that does not claim to be settled, or capturable, "varied"
    for one whose runs may not differ in a setting.

    >>> check_method("gem", memory_per_class=2)[:7]
    ['settings', 'corners', 'seeded', 'predictions', 'stacked', 'varied', 'one pass']
    """
    entry = method_entry(method) if isinstance(method, str) else method
    if not isinstance(entry, Entry):
        raise EngramError(f"method must be the name of one, or its Entry, not {shown(method)}.")
    build: Callable[..., MethodSettings] = entry.settings
    subject = Subject(entry, build(**{"batch_size": _BATCH_SIZE, **settings}))
    learner = subject.fresh_run().method
    unclaimed = {check for check, claim in _CLAIMS.items() if not getattr(learner, claim)}
    unclaimed |= set() if entry.varies else {"varied"}
    chosen = {name: check for name, check in _CHECKS.items() if name not in unclaimed}
    for check in chosen.values():
        try:
            check(subject)
        except AssertionError as broken:
            raise AssertionError(f"{entry.name} {broken}") from broken
    return list(chosen)
