"""How long runs will take, by those that were made before."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from engram.studies._published import Taken

if TYPE_CHECKING:
    from engram.protocol import Spec


_FAR = 4.0


class Timings:
    """Seconds that were taken on one device, by its name."""

    def __init__(self, made: Iterable[Taken], device: str) -> None:
        self._seconds: dict[tuple[str, str], dict[tuple[int, int], float]] = {}
        for each in made:
            if each.device == device:
                alike = self._seconds.setdefault((each.benchmark, each.method), {})
                alike[each.tasks, each.examples] = each.seconds

    def seconds(self, spec: Spec) -> float | None:
        """Return about how many seconds a run will take, or None where nothing like it was made.

        That is what runs with as many tasks and examples took or, where there are none, those of
        the method on the benchmark that are nearest to it in examples, in proportion to these.
        Where there were four times as many, or a fourth, evaluation spoils the proportion: None.
        """
        identity = spec.identity()
        alike = self._seconds.get((identity["benchmark"], identity["method"]), {})
        if (spec.tasks, spec.examples) in alike:
            return alike[spec.tasks, spec.examples]
        shares = {
            spec.tasks * spec.examples / (tasks * examples): seconds
            for (tasks, examples), seconds in alike.items()
        }
        nearest = min(shares, key=lambda share: abs(math.log(share)), default=math.inf)
        return nearest * shares[nearest] if 1 / _FAR < nearest < _FAR else None
