"""What the application needs of the laboratory: seven functions and a class."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from engram.protocol import Checkpoint, Outcome, Progress, SettingHelp, Spec
    from engram.settings import Scalar


class Run(Protocol):
    """Trains a spec with some seeds, or one for each seed, and returns an outcome for each."""

    def __call__(
        self,
        spec: Spec | Sequence[Spec],
        seeds: Sequence[int],
        *,
        device: str = "cpu",
        progress: Callable[[Progress], None] | None = None,
        record_every: int = 0,
        checkpoint: Checkpoint | None = None,
        deterministic: bool = False,
    ) -> list[Outcome]: ...


class Laboratory(Protocol):
    """The door to the laboratory; the module ``engram.protocol`` is the real one.

    The application goes through nothing else, so that it never imports torch before it must and
    its tests can train in a millisecond.
    """

    @property
    def run(self) -> Run: ...
    @property
    def Checkpoint(self) -> type[Checkpoint]: ...  # noqa: N802 (a class)
    def stacking(self, spec: Spec, device: str) -> tuple[int, str]: ...
    def stack_key(self, spec: Spec) -> Hashable: ...
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
    def tuning_specs(
        self,
        benchmark: str,
        method: str,
        *,
        tasks: int | None = None,
        examples: int | None = None,
        passes: int = 1,
        overrides: Mapping[str, str] | None = None,
    ) -> list[Spec]: ...
    def tuned_settings(self, spec: Spec) -> dict[str, Scalar]: ...
