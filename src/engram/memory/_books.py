"""What can be read in a ledger: who sits where, and who may be sampled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from engram.errors import EngramError
from engram.memory._columns import Ids, Incoming, Integers, identities, incoming
from engram.memory._draws import draw
from engram.memory._example import Example, Id, Tags, Where, condition
from engram.memory._filing import Filing
from engram.memory._policies import Policy, natural
from engram.memory._seats import copied
from engram.memory._table import NONE, Indices


class Books:
    """The reading side of a `Ledger`: nothing here changes what is held."""

    def __init__(self, policy: Policy, max_examples: int | None) -> None:
        self.policy = policy
        self._filing = Filing(policy, max_examples)
        self.journal = self._filing.journal
        """What undoes a change that has begun; empty once it is made or undone."""
        self._by_task: dict[int, Indices] | None = None

    def __len__(self) -> int:
        return len(self._filing.slots.ids)

    @property
    def capacity(self) -> int | None:
        """The most examples that can be held at a time; None where there is no bound."""
        return self._filing.capacity

    def rows(self, wanted: int, *, at_once: bool) -> int:
        """Return how many rows a storage allocates where so many are wanted.

        A pool, and whatever is to be allocated ``at_once``, gets all that it can ever hold.
        """
        if self.capacity is None:
            return wanted
        return self.capacity if at_once or not self.policy.by_class else min(wanted, self.capacity)

    @property
    def available(self) -> int:
        """How many may be sampled: all held, or those of the tasks that have ended."""
        return len(self) if self.policy.include_current else self._filing.slots.sealed

    @property
    def tasks(self) -> Indices:
        """The tasks by slot, the least int64 where none was given."""
        return self._filing.slots.tasks

    @property
    def labels(self) -> Indices:
        """The labels by slot, the least int64 where none was given."""
        return self._filing.slots.labels

    @property
    def ids(self) -> list[Id]:
        """The ids by slot."""
        return self._filing.slots.ids

    @property
    def tags(self) -> list[Tags | None]:
        """Copies of the tags by slot."""
        return [copied(own) for own in self._filing.slots.tags]

    @property
    def has_tasks(self) -> bool:
        """Whether the examples held have tasks."""
        return self._filing.slots.has_tasks

    @property
    def has_labels(self) -> bool:
        """Whether the examples held have labels."""
        return self._filing.slots.has_labels

    def examples(self) -> Iterator[Example]:
        """Iterate over everything held, in slot order."""
        return map(self._filing.slots.example, range(len(self)))

    @property
    def table(self) -> Indices:
        """The tasks, the labels and the ids [3, rows]; the ids only where they are `numeric`."""
        return self._filing.slots.table.array

    @property
    def numeric(self) -> bool:
        """Whether all ids so far were integers of 64 bits."""
        return self._filing.slots.numeric

    def named(self, ids: Ids | None, where: Where | None) -> list[Id]:
        """Return the ids asked for: those given, held or not, or of those held that match."""
        if ids is not None and where is None:
            return identities(ids)
        if where is not None and ids is None:
            matches = condition(where)
            held = list(self.examples())  # the user's function may change who is held
            return [example.id for example in held if matches(example)]
        raise EngramError("erase needs either ids or where.")

    def prepare(
        self,
        tasks: int | Integers | None,
        labels: Integers | None,
        ids: Ids | None = None,
        tags: Tags | Sequence[Tags | None] | None = None,
        *,
        count: int | None = None,
    ) -> Incoming:
        """Return what `add` would file, or refuse it; nothing has changed yet."""
        batch = incoming(tasks, labels, ids, tags, count)
        if batch.tasks:
            self.check(batch)
        return batch

    def check(self, batch: Incoming) -> None:
        """Refuse a batch that lacks what the policy needs, or what the examples held have."""
        has_tasks, has_labels = batch.tasks[0] != NONE, batch.labels[0] != NONE
        if self.policy.by_class and not has_labels:
            raise EngramError(
                f"{type(self.policy).__name__} keeps examples by class; give labels, "
                "a one-dimensional integer tensor."
            )
        held = self._filing.slots
        differ = has_tasks != held.has_tasks, has_labels != held.has_labels
        if True in differ and held.ids:
            name, had = ("tasks", held.has_tasks) if differ[0] else ("labels", held.has_labels)
            was = "with" if had else "without"
            raise EngramError(
                f"The memory holds examples {was} {name}; give all batches {was} {name}."
            )

    def draw(self, count: int, generator: np.random.Generator) -> Indices:
        """Return ``count`` slots drawn without replacement, all in order if there are fewer."""
        return draw(self.available, natural("count", count), generator)

    def slots_by_task(self) -> dict[int, Indices]:
        """Return the slots of each task that may be sampled, in order."""
        if self._by_task is None:
            tasks = self.tasks[: self.available]
            if self.available and not self.has_tasks:
                raise EngramError("The memory's examples have no tasks; give tasks when adding.")
            order = np.argsort(tasks, kind="stable")
            names, starts = np.unique(tasks[order], return_index=True)
            parts = np.split(order, starts[1:])
            self._by_task = dict(zip(names.tolist(), parts, strict=False))
        return self._by_task
