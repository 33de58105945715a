"""The paper's settings of Permuted MNIST with few examples or many tasks, by name."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from engram.settings import Scalar


@dataclass(frozen=True)
class Preset:
    """A benchmark in a setting of its own: so many tasks, so many examples, so large a memory.

    The paper has figures of these settings and no numbers, and tells neither the memory nor the
    learning rate. Here a memory has room for ``memory_per_class`` examples of each class of each
    task, and the methods that keep so many of each class step by ``learning_rate``.
    """

    benchmark: str
    tasks: int
    examples: int
    memory_per_class: int = 6
    learning_rate: float = 0.1
    classes: int = 10

    def settings(self, known: Collection[str], tasks: int) -> dict[str, Scalar]:
        """Return the values for a method that knows these settings, on so many tasks."""
        if "memory_per_class" in known:
            return {"memory_per_class": self.memory_per_class, "learning_rate": self.learning_rate}
        if "memory_size" in known:  # one pool for all classes, as large in the end
            return {"memory_size": self.memory_per_class * self.classes * tasks}
        return {}


_MNIST = "permuted-mnist"
PRESETS = {f"{_MNIST}-{examples}": Preset(_MNIST, 20, examples) for examples in (200, 400, 600)} | {
    f"many-permutations-{tasks}": Preset(_MNIST, tasks, 200) for tasks in (30, 50, 70)
}
