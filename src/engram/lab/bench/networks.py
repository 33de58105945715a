"""The price of the general case: a module in the place of each network that is written by hand.

Both take the steps of MEGA-II in one run, on the same data and in the same precision.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

from engram.lab.bench.sessions import CIFAR, EARLIER, EXAMPLES, Later, on_noise, permuted, pictures
from engram.lab.bench.timing import Timing, median, microseconds, ratio, take_turns, timed
from engram.lab.protocol import BenchmarkSession

BY_HAND, MODULE = "by hand", "module"
_MOST = 1.8  # times the residual network's step that is written by hand, captured on a GPU
_TURNS = 3  # of each on a GPU


class Kind(NamedTuple):
    """A network: what readers call it, its module's name, its precision, and its session."""

    words: str
    name: str
    precision: str
    session: Callable[..., Any]
    rounds: int  # of a block on a CPU
    bound: float | None = None  # on a GPU


def _mlp(stack: ExitStack, network: str | None, device: str, tasks: int) -> BenchmarkSession:
    examples = EARLIER if device == "cpu" else EXAMPLES
    session = permuted("mega-ii", tasks=tasks, examples=examples, device=device, network=network)
    return stack.enter_context(session)


def _resnet(stack: ExitStack, network: str | None, device: str, tasks: int) -> BenchmarkSession:
    session = on_noise(
        CIFAR, pictures(CIFAR), precision="tf32", tasks=tasks, device=device, network=network
    )
    return stack.enter_context(session)


KINDS = (
    Kind("MLP, Permuted MNIST", "mlp", "float32", _mlp, 20),
    Kind("reduced ResNet-18, Split CIFAR", "resnet18-reduced", "tf32", _resnet, 2, _MOST),
)


def on_cpu(kinds: tuple[Kind, ...] = KINDS, *, blocks: int = 6) -> list[dict[str, Any]]:
    """Measure both on one thread of a CPU, where they take turns; in the second of two tasks."""
    rows = []
    for kind in kinds:
        with ExitStack() as stack:
            turns = {
                label: timed(_steps(kind.session(stack, network, "cpu", 2)))
                for label, network in ((BY_HAND, None), (MODULE, kind.name))
            }
            times = take_turns(turns, blocks, kind.rounds)
        rows.append(
            {
                "network": kind.words,
                "precision": "float32",  # whatever a GPU rounds, a CPU does not
                "milliseconds": 1e3 * median(times, MODULE),
                "beside_milliseconds": 1e3 * median(times, BY_HAND),
                **ratio(times, MODULE, BY_HAND),
                "bound": None,
            }
        )
    return rows


def on_gpu(device: str, kinds: tuple[Kind, ...] = KINDS) -> list[dict[str, Any]]:
    """Measure captured steps of both by a GPU's clock, in the last of 17 tasks, by turns."""
    rows = []
    for kind in kinds:
        with ExitStack() as stack:
            sessions = {
                label: kind.session(stack, network, device, 17)
                for label, network in ((BY_HAND, None), (MODULE, kind.name))
            }
            lengths = {
                label: len(session.last_task(CIFAR.earlier)) // _TURNS
                for label, session in sessions.items()
            }
            found = {label: list[Timing]() for label in sessions}
            for turn in range(_TURNS):
                for label, session in sessions.items():
                    later = Later(session, turn * lengths[label])
                    found[label].append(microseconds(later, lengths[label], warm_up=5, blocks=3))
        pairs = zip(found[MODULE], found[BY_HAND], strict=True)
        ratios = sorted(mine.median / theirs.median for mine, theirs in pairs)
        middle = {
            label: sorted(each.median for each in taken)[_TURNS // 2] / 1e3
            for label, taken in found.items()
        }
        rows.append(
            {
                "network": kind.words,
                "precision": kind.precision,
                "milliseconds": middle[MODULE],
                "beside_milliseconds": middle[BY_HAND],
                "ratio": ratios[_TURNS // 2],
                "lowest": ratios[0],
                "highest": ratios[-1],
                "bound": kind.bound,
            }
        )
    return rows


def _steps(session: BenchmarkSession) -> Callable[[], None]:
    numbers: Iterator[int] = itertools.cycle(range(len(session.last_task(CIFAR.earlier))))

    def run() -> None:
        session.take(next(numbers))

    return run
