"""Benchmarks of somebody's own data: how large they are is told by the data."""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from engram.errors import EngramError, on_one_line
from engram.settings import Settings
from engram.streams._benchmark import Benchmark
from engram.streams._own_tasks import OwnTasks
from engram.streams._stream import Stream

_DIGITS = 10  # of the checksum that a result is filed under
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class OwnBenchmark(Benchmark):
    """A benchmark that is read from somebody's own data, as its settings say.

    A result is filed under ``address(checksum)``: what the data is called and the first digits of
    its checksum. The checksum is of the tasks as they are trained on, so a setting that says how
    to read the data is a ``place`` (see `engram.settings`), and the path is no part of it.
    """

    like: str  # the paper's benchmark whose settings of the methods are the presets here
    size: Callable[[Any], tuple[int, int]]  # tasks, and the examples of the longest
    address: Callable[[str], str]
    tuning_tasks: int = 0  # nobody has tasks to spare

    def sized(self, settings: Settings) -> OwnBenchmark:
        """Return the benchmark as large as it is with these settings."""
        tasks, examples = self.size(settings)
        return replace(self, paper_tasks=tasks, most_tasks=tasks, most_examples=examples)


def own_benchmark(
    kind: str,
    called: str,
    settings: type[Settings],
    *,
    like: str,
    read: Callable[[Any], OwnTasks],
    build: Callable[..., Stream],
    stacks: int = 1,
) -> OwnBenchmark:
    """Return the benchmark of the tasks that ``read(settings)`` returns.

    ``build`` is called as `Benchmark` says, with the tasks in front and without ``tuning``.
    """

    def size(chosen: Settings) -> tuple[int, int]:
        own = read(chosen)
        for remark in own.remarks:
            _tell_once(remark)
        return len(own.parts), max(len(part.train) for part in own.parts)

    def checksum(chosen: Settings) -> str:
        return read(chosen).checksum[:_DIGITS]

    def built(
        *given: Any,  # noqa: ANN401
        settings: Settings,
        tuning: bool = False,  # noqa: ARG001 (there are no tuning tasks)
        **options: Any,  # noqa: ANN401
    ) -> Stream:
        return build(read(settings), *given, settings=settings, **options)

    name = "-".join(filter(None, (kind, plain(called))))
    return OwnBenchmark(
        name=name,
        settings=settings,
        paper_tasks=0,
        most_examples=0,
        build=built,
        checksum=checksum,
        stacks=stacks,
        like=like,
        size=size,
        address=lambda digits: f"{name}-{digits}",
    )


def own_place(kind: str, path: str) -> Path:
    """Return the path that stands behind a kind of data, as in ``folder:PATH``."""
    try:
        place = Path(path).expanduser()
        place.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass  # whoever reads it says what is missing
    except (OSError, RuntimeError, ValueError) as error:  # no home; no name for a file
        reason = getattr(error, "strerror", None) or error
        raise EngramError(f"{kind}: must be followed by a path, not {path!r}: {reason}.") from error
    return place


@cache
def _tell_once(remark: str) -> None:
    _LOG.warning(on_one_line(remark))


def filed(name: str, settings: type[Settings], like: str) -> OwnBenchmark:
    """Return what a store of results knows as ``name``: the settings, but not the data."""

    def refuse(*_: object, **__: object) -> Stream:
        raise EngramError(
            f"{name} is what results are filed under, not where the data is: "
            f"that is given as {name.partition('-')[0]}:PATH."
        )

    return OwnBenchmark(
        name=name,
        settings=settings,
        paper_tasks=0,
        most_examples=0,
        build=refuse,
        checksum=lambda _: name[-_DIGITS:],
        like=like,
        size=lambda _: (1, 2**31 - 1),
        address=lambda _: name,
    )


def is_filed(name: str, kind: str) -> bool:
    """Whether a name is one that results of somebody's own data are filed under."""
    return re.fullmatch(rf"{kind}-([a-z0-9]+-)*[0-9a-f]{{{_DIGITS}}}", name) is not None


def plain(name: str) -> str:
    """Return a name in small letters, digits and single hyphens.

    >>> plain("Été 2024 (à Nice)")
    'ete-2024-a-nice'
    """
    ascii_ = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", ascii_).strip("-")
