"""What the application needs of the laboratory: four functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from engram.protocol import Outcome, Progress, SettingHelp, Spec


class Run(Protocol):
    """Trains one spec with some seeds and returns an outcome for each."""

    def __call__(
        self,
        spec: Spec,
        seeds: Sequence[int],
        *,
        device: str = "cpu",
        progress: Callable[[Progress], None] | None = None,
    ) -> list[Outcome]: ...


class Laboratory(Protocol):
    """The door to the laboratory; the module ``engram.protocol`` is the real one.

    The application goes through nothing else, so that it never imports torch before it must and
    its tests can train in a millisecond.
    """

    @property
    def run(self) -> Run: ...
    def stacking(self, spec: Spec, device: str) -> tuple[bool, str]: ...
    def settings_help(self, benchmark: str, method: str) -> list[SettingHelp]: ...
    def specify(
        self,
        benchmark: str,
        method: str,
        *,
        tasks: int | None = None,
        examples: int | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> Spec: ...
