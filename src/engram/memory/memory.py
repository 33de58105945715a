"""The episodic memory: examples are added, sampled, erased and saved here."""

from __future__ import annotations

import copy
import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import EllipsisType
from typing import Any, Literal, NamedTuple, TypeAlias, overload

import numpy as np
import torch
from torch import Tensor

from engram.errors import EngramError, shown, unknown
from engram.memory import files
from engram.memory.blocks import Block, Blocks, checked_secret, checked_subject
from engram.memory.columns import (
    Batch,
    chosen,
    example_nbytes,
    first_not_finite,
    has_ragged,
    is_finite,
    largest_magnitude,
    on_host,
    one_by_one,
)
from engram.memory.examples import (
    UNREAD,
    Erasure,
    Example,
    Ids,
    Integers,
    Metadata,
    Numbers,
    Sample,
    Tags,
    Where,
    from_bytes,
    integers,
    stored_ids,
    to_bytes,
)
from engram.memory.files import UntrustedInput, refuse_unless, to_arrays, to_tensors
from engram.memory.journal import Journal, deep_copy, refuse_within, undo
from engram.memory.ledger import Ledger
from engram.memory.mapped import MEMORY, MappedStorage
from engram.memory.policies import (
    Policy,
    Selective,
    describe,
    natural,
    policy_from_json,
    positive,
)
from engram.memory.ragged import RaggedStorage
from engram.memory.sampling import Draw, Draws, draw, draw_weighted, spread
from engram.memory.slots import MEASURES, Indices, Moves
from engram.memory.storage import IndexStorage, Staged, TensorStorage

_POOLED = 0  # stands for all tasks together
_WITH_BLOCKED = ("refuse", "skip")
_STRATA = ("class", "task")
_MOST = 1024  # batches that are unsettled: what undoes them takes memory
_MOST_AT_ONCE = 2**15  # bytes of slots: a GPU may wait for the work before it to take more


Collate: TypeAlias = Callable[[list[Any]], Any]
"""Makes a batch of a list of examples, as a `DataLoader`'s ``collate_fn`` does."""


class Prepared(NamedTuple):
    """A batch that `Memory.prepare` has found no fault with."""

    batch: Batch
    tensors: list[Tensor]
    metadata: Metadata
    size: int  # how many examples there are
    examples: list[Any]  # the storage's, with which it agrees
    magnitude: Tensor | None
    """A number of the batch's device that is finite if all values are, and has not been waited for.

    None where no device was to be asked.
    """
    skipped: tuple[int, ...] = ()
    """Which examples were left out, counted from 0: those of subjects that are blocked."""
    blocks: Blocks | None = None
    """Which these were when it was prepared."""
    label_column: int | None = None
    """Which of the tensors has the labels, where they are on a device and have not been read."""

    @property
    def finite(self) -> Tensor | None:
        """Whether all values are finite, a bool of the batch's device that is not waited for.

        None where no device was to be asked.
        """
        return None if self.magnitude is None else self.magnitude < math.inf


class _Unsettled(NamedTuple):
    """A batch of which only the device knows whether it was filed."""

    valid: Tensor  # and so were all that are unsettled before it
    journal: Journal  # what undoes it in the ledger


def checked_collate(collate: Collate | None) -> Collate | None:
    """Return the function, or refuse what is none."""
    if collate is not None and not callable(collate):
        raise EngramError(f"collate is {shown(collate)}; give a function of a list of examples.")
    return collate


def _default_collate(examples: list[Any]) -> Any:  # noqa: ANN401  # whatever they are made of
    from torch.utils.data import default_collate

    return default_collate(examples)


def _check_budget(max_bytes: int | None, nbytes: int) -> None:
    if max_bytes is not None and nbytes > max_bytes:
        raise EngramError(f"max_bytes is {max_bytes}, less than the {nbytes} bytes of one example.")


def _magnitude(tensors: list[Tensor]) -> Tensor | None:
    """Refuse values of the host that are not finite; return the `Prepared.magnitude` of others."""
    found: Tensor | None = None
    for tensor in tensors:
        if on_host(tensor.device):
            if not is_finite(tensor):
                raise _not_finite(tensors)
        elif (own := largest_magnitude(tensor)) is not None:
            found = own if found is None else torch.maximum(found, own.to(found.device))
    return found


def _not_finite(tensors: list[Tensor]) -> EngramError:
    return EngramError(
        f"Example {first_not_finite(tensors)} of the batch, counted from 0, holds a value that is "
        "not finite; leave it out, or give the memory allow_nonfinite=True."
    )


def _check_how(by_task: object, stratify: object, weighted: object) -> None:
    """Refuse ways to sample that there are not."""
    if not isinstance(weighted, bool):
        raise EngramError(f"weighted is {shown(weighted)}; it must be True or False.")
    if stratify is not None and (not isinstance(stratify, str) or stratify not in _STRATA):
        raise unknown("way to stratify", stratify, _STRATA)
    if stratify is not None and by_task:
        raise EngramError("by_task gives a sample of each task already; leave stratify out.")


def _is_folder(path: object) -> bool:
    try:
        return (Path(path) / MEMORY).exists()  # type: ignore[arg-type]
    except (OSError, TypeError, ValueError):
        return False


def _with_capacity(policy: Policy, wanted: object) -> Policy:
    """Return a policy, or a policy of another capacity."""
    if isinstance(wanted, Policy):
        return wanted
    own: Any = policy
    names = [
        each.name for each in dataclasses.fields(own) if each.name in ("capacity", "per_class")
    ]
    if not names:
        raise EngramError(
            f"{type(policy).__name__} has no capacity that a number tells; give a policy."
        )
    positive(names[0], wanted)
    changed: Policy = dataclasses.replace(own, **{names[0]: wanted})
    return changed


def _check_reason(reason: object) -> None:
    if not isinstance(reason, str):  # it is saved with the memory
        raise EngramError(f"reason is {shown(reason)}; give a string.")


def _subject_of(where: object, block: object) -> Tags | None:
    """Return the tags that an erasure is to block, if any."""
    if not isinstance(block, bool):
        raise EngramError(f"block is {shown(block)}; it must be True or False.")
    if not block:
        return None
    if not isinstance(where, Mapping) or where.keys() != {"tags"}:
        raise EngramError("block=True needs where={'tags': {...}}: the tags that are blocked.")
    return checked_subject(where["tags"])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _check_flag(valid: object) -> None:
    if not isinstance(valid, Tensor) or valid.dtype != torch.bool or valid.ndim:
        raise EngramError(
            f"valid is {shown(valid)}; give a tensor of one truth value, without dimensions."
        )


def _load_erasures(records: Any) -> list[Erasure]:  # noqa: ANN401  # JSON
    """Return the records of what was erased."""
    erasures = []
    for when, ids, reason in records:
        refuse_unless("erasures", isinstance(when, str) and isinstance(reason, str))
        erasures.append(Erasure(when, tuple(stored_ids(ids)), reason))
    return erasures


def _loaded_max_examples(
    state: Mapping[str, Any], held_to: int | None
) -> int | EllipsisType | None:
    """Return the budget in examples as it was given, where a state says it or there is no other."""
    if "max_examples" not in state:
        return held_to if state["max_bytes"] is None else ...
    given: int = state["max_examples"]
    positive("max_examples", given)
    lower = held_to is not None and held_to <= given and state["max_bytes"] is not None
    refuse_unless("max_examples", lower)
    return given


def _least_version(state: Mapping[str, Any]) -> int:
    """Return the oldest version of a file whose readers know all that a state holds."""
    ledger = state["ledger"]
    ragged = state["storage"]["kind"] == RaggedStorage.kind
    newer = ragged or not {"blocks", "max_examples"}.isdisjoint(state) or "max_age" in ledger
    newer = newer or not ledger["filing"].keys().isdisjoint(MEASURES)
    return 3 if newer else 1


def _plural(name: str, count: int) -> str:
    return name if count == 1 else f"{name}es" if name.endswith("h") else f"{name}s"


class Memory:
    """Examples of the past, kept by a policy in a storage (`TensorStorage`), within a budget.

    ``max_examples`` and ``max_bytes`` bound what is held; the bytes are those of the storage's
    tensors. A pool (`Reservoir`, `Fifo`) and a budget in bytes are allocated in full by the first
    batch, so that growing never needs old rows beside new ones; other rows grow geometrically.

    An example that was erased is gone: its row is overwritten, its id never enters again, and the
    record of it, in ``erasures``, is saved with the memory.

    With ``max_age`` examples grow old: the age of one is the largest task number that has come,
    less its own, or with ``age_by="time"`` the latest of the ``times``, less its own. One whose age
    is above ``max_age`` is let go by the batch that makes it so, before anything of that batch is
    kept. An example that comes too late is passed over.

    A subject that is blocked (`block`) is known by its tags. Its examples are refused, the whole
    batch with them, or with ``blocked="skip"`` left out (``Prepared.skipped`` says which). Their
    values are kept as keyed hashes alone; the key is random and saved with the memory, unless you
    give a ``secret`` of 16 to 64 bytes, which is not.

    Values that are not finite are refused, unless ``allow_nonfinite`` says otherwise. That is not
    saved with the memory.

    Threads may share a memory. Whatever interrupts a change of it, Ctrl-C as well as a lack of
    memory, finds it as it was before or as it is after.

    >>> from engram.memory import Reservoir
    >>> memory = Memory(Reservoir(capacity=100), max_bytes=640)
    >>> memory.add((torch.zeros(30, 14), torch.zeros(30, dtype=torch.int64)))
    >>> len(memory), memory.nbytes
    (10, 640)
    >>> sample = memory.sample(4)
    >>> sample.batch[0].shape, sample.labels
    (torch.Size([4, 14]), tensor([0, 0, 0, 0]))
    >>> memory.erase(ids=sample.ids, reason="withdrawn").reason, len(memory)
    ('withdrawn', 6)
    """

    _blocks, _blocked = Blocks(), "refuse"
    # As it was given: one in bytes may allow fewer. Of what earlier versions wrote not known (...).
    _max_examples: int | EllipsisType | None = ...
    collate: Collate | None = None
    """Makes a batch of the examples of a sample; None for columns as they were added."""
    _chooses_storage = False
    # Which of the storage's columns has the labels that the ledger lacks; None if it lacks none.
    _label_column: int | None = None

    def __init__(
        self,
        policy: Policy,
        storage: TensorStorage | None = None,
        *,
        max_examples: int | None = None,
        max_bytes: int | None = None,
        seed: int = 0,
        allow_nonfinite: bool = False,
        max_age: float | None = None,
        age_by: Literal["task", "time"] = "task",
        collate: Collate | None = None,
        blocked: Literal["refuse", "skip"] = "refuse",
        secret: bytes | None = None,
    ) -> None:
        if max_bytes is not None:
            positive("max_bytes", max_bytes)
        if not isinstance(storage, TensorStorage | None):
            raise EngramError(f"storage is {storage!r}; give one such as TensorStorage().")
        if not isinstance(allow_nonfinite, bool):
            given = shown(allow_nonfinite)
            raise EngramError(f"allow_nonfinite is {given}; it must be True or False.")
        ledger = Ledger(
            policy, max_examples=max_examples, seed=seed, max_age=max_age, age_by=age_by
        )
        self.storage = TensorStorage() if storage is None else storage
        self._chooses_storage = storage is None
        if not isinstance(blocked, str) or blocked not in _WITH_BLOCKED:
            raise unknown("use of blocked subjects", blocked, _WITH_BLOCKED)
        self._blocks, self._blocked = checked_secret(secret), blocked
        self.collate = checked_collate(collate)
        # One lock for whatever reads or changes the memory: a second one could be taken before it
        # by one thread and after it by another.
        self._lock = ledger.lock = self.storage.lock
        self._ledger = ledger
        self._draws = Draws(natural("seed", seed))
        self._table: Indices | None = None
        self._views: list[Tensor] = []  # of the table's columns
        # A block of draws, and some of its rows, from one on, on the storage's device.
        self._block: tuple[Tensor, int, Sequence[Tensor]] | None = None
        self.policy = policy
        self.max_bytes = max_bytes
        self._max_examples = max_examples
        self.allow_nonfinite = allow_nonfinite
        self.erasures: list[Erasure] = []
        # What finishes a change that can no longer be undone: a call, and None between changes.
        self._redo: tuple[Any, ...] | None = None
        # Rows that could not be written, and the slots they were to be written to.
        self._doubtful: tuple[tuple[Tensor, list[int]], ...] = ()
        self._unsettled: list[_Unsettled] = []
        self._source: object = None  # what all their flags come from; None if not from one
        self._undone = 0  # batches that were found not to be valid, since `settle` last counted

    def __repr__(self) -> str:
        """Return what the memory is and holds; it reads no flag."""
        with self._lock:
            self._finish()
            ledger, storage = self._ledger, self.storage
            most = "" if ledger.capacity is None else f" of at most {ledger.capacity:,}"
            parts = [f"{len(ledger):,}{most} {_plural('example', ledger.capacity or len(ledger))}"]
            if self._unsettled:
                batches = _plural("batch", len(self._unsettled))
                parts.append(f"{len(self._unsettled):,} {batches} unsettled")
            if len(ledger) and ledger.has_tasks:
                tasks = len(np.unique(ledger.tasks))
                parts.append(f"{tasks:,} {_plural('task', tasks)}")
            where = "" if storage.device is None else f" on {storage.device}"
            parts.append(f"{storage.nbytes:,} bytes in {type(storage).__name__}{where}")
            return f"{type(self).__name__}({self.policy!r}: {', '.join(parts)})"

    def __len__(self) -> int:
        self._finish()
        return len(self._ledger)

    @property
    def max_age(self) -> float | None:
        """How old an example may become: see the class."""
        return self._ledger.max_age

    @property
    def age_by(self) -> str:
        """What ages are counted in, ``"task"`` or ``"time"``."""
        return self._ledger.age_by

    @property
    def available(self) -> int:
        """How many examples may be sampled: all held, or those of the tasks that have ended."""
        self._finish()
        return self._ledger.available

    @property
    def has_weights(self) -> bool:
        """Whether any example was given a weight."""
        self._finish()
        return self._ledger.weights is not None

    @property
    def nbytes(self) -> int:
        """The bytes of the tensors that the storage has allocated."""
        with self._lock:
            self._settle()
            return self.storage.nbytes

    def add(
        self,
        batch: Batch,
        *,
        tasks: int | Integers | None = None,
        labels: Integers | None = None,
        ids: Ids | None = None,
        tags: Tags | Sequence[Tags | None] | None = None,
        weights: Numbers | None = None,
        times: float | Numbers | None = None,
    ) -> None:
        """Offer a batch; the policy decides what stays. O(batch), whatever the memory holds.

        ``labels`` are by default a tuple's last tensor, if that is one-dimensional and of integers.
        ``ids`` are strings, or integers of at most 512 bits; one that is held already is updated,
        one that was erased is passed over. ``tags`` are JSON scalars by name: one mapping for all,
        or one for each example. ``weights`` are numbers above 0, 1 for examples that are given
        none; ``times`` are numbers on any scale, one for all or one for each example. Tensors may
        be of any dtype whose values torch can copy; values that are not finite are refused unless
        the memory was made to allow them.
        """
        self.file(
            self.prepare(
                batch,
                tasks=tasks,
                labels=labels,
                ids=ids,
                tags=tags,
                weights=weights,
                times=times,
            )
        )

    def prepare(
        self,
        batch: Batch,
        *,
        tasks: int | Integers | None = None,
        labels: Integers | None = None,
        ids: Ids | None = None,
        tags: Tags | Sequence[Tags | None] | None = None,
        weights: Numbers | None = None,
        times: float | Numbers | None = None,
    ) -> Prepared:
        """Refuse a batch that `add` would refuse, and change nothing; `file` does the rest of it.

        So a training step can check its batch before it is learnt, and remember it afterwards.
        Nothing waits for a device: whether the values of a batch on one are finite is in
        ``finite``, for the caller of `file`.
        """
        with self._lock:
            self._finish()
            if self._chooses_storage and not self.storage.rows:
                self._choose_storage(has_ragged(batch))
            tensors = self.storage.check(batch)
            size = len(tensors[0])
            column = None
            if not self.policy.by_class:
                column = self.storage.label_column(batch, tensors, labels)
            if column is not None:
                labels = None
            elif labels is None:
                labels = self.storage.labels(batch)
            sizes = None if self.max_bytes is None else self.storage.sizes(tensors)
            described = None
            if isinstance(self.policy, Selective) and size:
                described = describe(self.policy, batch, size)
            metadata = self._ledger.prepare(
                tasks,
                labels,
                ids,
                tags,
                count=size,
                weights=weights,
                times=times,
                sizes=sizes,
                described=described,
                unread=column is not None,
            )
            if sizes is not None:
                _check_budget(self.max_bytes, max(sizes, default=0))
            elif self.max_bytes is not None and not self.storage.rows:
                _check_budget(self.max_bytes, example_nbytes(tensors))
            own = None if self.allow_nonfinite else _magnitude(self.storage.values(tensors))
            prepared = Prepared(
                batch, tensors, metadata, size, self.storage.examples, own, label_column=column
            )
            return self._without_blocked(prepared) if self._blocks.entries else prepared

    def _without_blocked(self, prepared: Prepared) -> Prepared:
        """Return a batch without the examples of blocked subjects, or refuse it."""
        metadata, found = prepared.metadata, {}
        for place, tags in enumerate(metadata.tags):
            entry = None if tags is None else self._blocks.of(tags)
            if entry is not None:
                found[place] = entry[0]
        if not found:
            return prepared._replace(blocks=self._blocks)
        if self._blocked == "refuse":
            place, names = next(iter(found.items()))
            raise EngramError(
                f"Example {place} of the batch, counted from 0, is of a subject that is blocked by "
                f"its tags ({', '.join(names)}); leave it out, or make the memory with "
                "blocked='skip'."
            )
        kept = [place for place in range(prepared.size) if place not in found]
        batch = chosen(prepared.batch, kept)
        ids = None if metadata.ids is None else [metadata.ids[place] for place in kept]
        own = Metadata(
            [metadata.tasks[place] for place in kept],
            [metadata.labels[place] for place in kept],
            ids,
            [metadata.tags[place] for place in kept],
            {name: [values[place] for place in kept] for name, values in metadata.measures.items()},
            None if metadata.described is None else metadata.described[kept],
        )
        return prepared._replace(
            batch=batch,
            tensors=self.storage.check(batch),
            metadata=own,
            size=len(kept),
            skipped=(*prepared.skipped, *found),
            blocks=self._blocks,
        )

    def with_labels(self, prepared: Prepared) -> Prepared:
        """Return a batch with its labels, which a device that has them is waited for."""
        column = prepared.label_column
        if column is None:
            return prepared
        labels: Any = prepared.tensors[column]
        if isinstance(self.storage, IndexStorage):
            labels = self.storage.labels(labels)
        read = integers("labels", labels, prepared.size)
        return prepared._replace(
            metadata=prepared.metadata._replace(labels=read), label_column=None
        )

    def _expect_labels(self, prepared: Prepared) -> Prepared:
        """Return a batch as it is to be filed: with its labels, or these are to be read later."""
        column = prepared.label_column
        other = prepared.examples is not self.storage.examples
        if column is not None and (other or self.policy.by_class):
            prepared, column = self.with_labels(prepared), None
        if column is None:
            if UNREAD in prepared.metadata.labels:  # a label that is that very number
                self._settle()
        elif column != self._label_column:
            if self._label_column is not None:
                self._settle()
            if len(self._ledger.unread()):
                return self.with_labels(prepared)
        return prepared

    def _read_labels(self) -> None:
        """Read the labels that the ledger lacks; whoever asks for them waits for the device."""
        if self._label_column is not None:
            slots = self._ledger.unread()
            if len(slots):
                found = self.storage.labels_in(
                    self._label_column, self.storage.place(torch.from_numpy(slots))
                )
                self._ledger.enter_labels(slots, found.cpu().numpy())

    def _choose_storage(self, ragged: bool) -> None:
        """Let the storage be of the kind that the first batch needs, where none was given."""
        kind = RaggedStorage if ragged else TensorStorage
        if type(self.storage) is not kind:
            storage = kind(self.storage.device)
            storage.lock = self._lock
            self.storage = storage

    def present(self, prepared: Prepared) -> Batch:
        """Return a batch as a sample of it will be, so that a model may be trained on it first.

        Indices become what they point at, and ``collate`` puts the examples together.
        """
        storage = self.storage
        if isinstance(storage, IndexStorage):
            return self._collated(storage.at(prepared.tensors[0]), self.collate)
        return self._collated(prepared.batch, self.collate)

    def _collated(self, batch: Batch, collate: Collate | None) -> Batch:
        if isinstance(self.storage, IndexStorage) and self.storage.dataset is not None:
            return (collate or _default_collate)(batch)
        return batch if collate is None else collate(one_by_one(batch))

    def file(
        self, prepared: Prepared, *, valid: Tensor | None = None, source: object = None
    ) -> None:
        """Add what `prepare` has checked: all of it or, where it is interrupted, nothing.

        With ``valid``, a bool without dimensions on any device, the batch is added where that and
        ``prepared.finite`` are true, and neither is waited for: the rows are written or left by the
        device, and the ledger, which is on the host, goes ahead until `settle` reads the flags.
        From the first batch that is not valid on, none is added until `settle` has returned how
        many there were. Until then `sample`, `references`, ``len`` and ``available`` go by the
        ledger, so what they give after a batch that is not valid is worth nothing; everything else
        settles first. A storage on the host has to wait for batches of a device anyway, and is
        settled at once.

        Flags of one ``source`` are each true only if those before it are, which saves the device a
        launch where all values are known to be finite. Where that was not so, batches that follow
        one that is not valid would be kept.

        Without ``valid``, values that are not finite are refused.
        """
        if valid is not None:
            _check_flag(valid)
        if self._blocks.entries and prepared.blocks is not self._blocks:
            prepared = self._without_blocked(prepared)
        if not prepared.size:
            return
        with self._lock:
            self._finish()
            if prepared.label_column != self._label_column:
                prepared = self._expect_labels(prepared)
            if valid is None:
                if self._unsettled:
                    self._read_flags()
                if prepared.magnitude is not None and not prepared.finite:
                    raise _not_finite(self.storage.values(prepared.tensors))
            else:
                wanted, valid = self._chain(valid, prepared, source)
                if not wanted:
                    return
            ledger, storage = self._ledger, self.storage
            # Another batch may have come first, or all that were there have gone.
            if prepared.examples is not storage.examples:
                storage.check(prepared.batch)
            ledger.check(prepared.metadata)
            try:  # as in `_erase`: one more call would cost every step
                ledger.begin()
                if prepared.label_column is not None:  # from here on nobody else settles
                    self._label_column = prepared.label_column
                if valid is not None:
                    ledger.note(self._draws.go_back, self._draws.mark())
                if len(ledger) + prepared.size > storage.rows:
                    self._make_room(prepared)
                slots = ledger.file(prepared.metadata)
                self._write(storage.stage(slots, prepared.tensors, ledger.moves, valid), valid)
            except BaseException:
                self._finish()
                raise

    def _chain(
        self, valid: Tensor, prepared: Prepared, source: object
    ) -> tuple[bool, Tensor | None]:
        """Return whether to file a batch, and by which flag; by none where it is known already."""
        if len(self._unsettled) >= _MOST:
            self._settle()
        if not self._undone:
            if prepared.magnitude is not None:
                finite, source = prepared.magnitude < math.inf, None
                valid = valid.to(finite.device) & finite
            storage = self.storage
            device = storage.device or storage.device_for(prepared.tensors)
            if not storage.waits_for_flags and (device.type != "cpu" or valid.is_cpu):
                if valid.device != device:
                    valid = valid.to(device)
                if not self._unsettled:
                    self._source = source
                elif source is None or source is not self._source:
                    self._source = None
                    valid = valid & self._unsettled[-1].valid
                return True, valid
            self._settle()
            if not self._undone and valid:
                return True, None
        self._undone += 1
        return False, None

    def settle(self) -> int:
        """Find out which batches were filed as not ``valid``, and go back to before the first.

        The memory is then, bit for bit, what it was when that batch was to be filed: no later one
        of those that were filed by a flag has left a trace, nor has any sample that was drawn
        since. All flags are read at once. Returns how many batches have been undone since it was
        last called.
        """
        with self._lock:
            self._settle()
            undone, self._undone = self._undone, 0
            return undone

    def _settle(self) -> None:
        """Do what everything does first that has to know which batches are there."""
        self._finish()
        self._read_flags()
        if self._label_column is not None:
            self._read_labels()
            self._label_column = None

    def _read_flags(self) -> None:
        if self._unsettled:
            flags = [each.valid for each in self._unsettled]
            kept = int(torch.stack(flags).sum())  # each is true only if those before it are
            self._withdraw(kept, self._undone + len(flags) - kept)

    def _withdraw(self, kept: int, undone: int) -> None:
        """Undo all unsettled batches but the first ones; this too may be done again."""
        self._redo = (self._withdraw, kept, undone)
        while len(self._unsettled) > kept:
            undo(self._unsettled[-1].journal)
            self._unsettled.pop()
        # In one step, so that an interruption never leaves one without the other.
        vars(self).update(_unsettled=[], _undone=undone, _redo=None)

    def _write(self, staged: Staged, valid: Tensor | None = None) -> None:
        """End a change: overwrite the rows. What interrupts this no longer undoes the change.

        Whatever is left of it is then done by `_finish`: all of this may be done again.
        """
        self._redo = (self._write, staged, valid)
        self.storage.commit(staged)
        if valid is not None:
            self._keep(valid)
        self._ledger.commit()
        self._doubtful = ()
        self._redo = None

    def _keep(self, valid: Tensor) -> None:
        """Keep what undoes a change, until its flag is read; once, however often this is done."""
        noted, unsettled = self._ledger.noted(), self._unsettled
        if noted and not (unsettled and unsettled[-1].journal[0] is noted[0]):
            unsettled.append(_Unsettled(valid, noted))

    def _finish(self) -> None:
        """Finish the last change, if an interruption or an error has left it unfinished.

        It is undone before its first row was written, and made afterwards. Where rows cannot be
        written, it is undone too, and the examples in these rows are given up.
        """
        if self._redo is None and not self._ledger.journal and not self._doubtful:
            return
        with self._lock:  # which another thread holds while it makes a change
            own = Memory
            refuse_within(
                self, own.file, own._erase, own._withdraw, own._replace, own._write, own._finish
            )
            if self._redo is not None:
                call, *arguments = self._redo
                try:
                    call(*arguments)
                except Exception:
                    if call != self._write:
                        raise
                    written = [(row, target.tolist()) for row, target, _ in arguments[0]]
                    # In one step, so that an interruption never leaves one without the other.
                    vars(self).update(_redo=None, _doubtful=(*self._doubtful, *written))
            self._ledger.undo()
            if self._doubtful:
                self._give_up()

    def _give_up(self) -> None:
        """Let the examples leave whose rows may have been written in part, and clear these rows."""
        self._read_flags()  # what undoes a batch is right for the ledger as that has left it
        ledger, slots = self._ledger, self.storage.in_use(self._doubtful)
        ledger.begin()
        ledger.release([ledger.ids[slot] for slot in slots if slot < len(ledger)])
        none = np.empty(0, np.int64)
        moves = ledger.moves or Moves(none, none, len(ledger), len(ledger))
        last = max([moves.previous, *(slot + 1 for slot in slots)])
        try:
            self._write(self.storage.stage([], [], moves._replace(previous=last)))
        except Exception as error:
            raise EngramError(
                f"The memory's rows cannot be written ({error}); until they can be, nothing of it "
                "can be read."
            ) from error

    def _make_room(self, prepared: Prepared) -> None:
        """Allocate rows before the ledger changes."""
        rows, needed = self.storage.rows, len(self._ledger) + prepared.size
        if rows and rows == self._ledger.capacity:
            return
        self._ledger.note(vars(self.storage).update, dict(vars(self.storage)))
        packed = isinstance(self.storage, RaggedStorage)
        if self.max_bytes is not None and not rows:
            if packed:
                self._ledger.restrict_bytes(self.max_bytes)
            else:
                self._ledger.restrict(self.max_bytes // max(example_nbytes(prepared.tensors), 1))
        at_once = self.max_bytes is not None and not packed
        rows = self._ledger.rows(max(needed, 2 * rows), at_once=at_once)
        self.storage.resize(rows, prepared.batch)

    def end_task(self) -> None:
        """Seal: everything held may be sampled from now on."""
        with self._lock:
            self._settle()
            self._ledger.end_task()

    @overload
    def sample(
        self,
        count: int,
        by_task: Literal[False] = False,
        *,
        stratify: Literal["class", "task"] | None = None,
        weighted: bool = False,
        collate: Collate | None = None,
    ) -> Sample | None: ...
    @overload
    def sample(
        self,
        count: int,
        by_task: Literal[True],
        *,
        stratify: None = None,
        weighted: bool = False,
        collate: Collate | None = None,
    ) -> dict[int, Sample] | None: ...
    def sample(
        self,
        count: int,
        by_task: bool = False,
        *,
        stratify: Literal["class", "task"] | None = None,
        weighted: bool = False,
        collate: Collate | None = None,
    ) -> Sample | dict[int, Sample] | None:
        """Return ``count`` examples drawn without replacement, in a random order.

        All of them, in the order of their slots, if there are no more. With ``by_task``: up to
        ``count`` of each task. With ``stratify``: ``count`` in all, equally many of each class or
        task; of one that has fewer all, and more of the others. With ``weighted``: one after
        another, each in proportion to the weights of those that are left. ``collate`` makes a
        batch of the list of examples, in place of the memory's own. None where nothing is
        available.
        """
        _check_how(by_task, stratify, weighted)
        collate = self.collate if collate is None else checked_collate(collate)
        with self._lock:
            self._finish()
            if stratify is None:
                draws = self._draw(count, by_task, in_order=False, weighted=weighted)
            else:
                draws = self._draw_stratified(count, stratify, weighted)
            samples = {task: self._read(slots, collate) for task, slots in draws.items()}
        if by_task:
            return samples or None
        return samples.get(_POOLED)

    def draw_again(self, count: int) -> Sample | None:
        """Return ``count`` examples drawn with replacement; None where nothing is available."""
        count = natural("count", count)
        with self._lock:
            self._finish()
            available = self._ledger.available
            if not available or not count:
                return None
            slots = self._draws.generator.integers(available, size=count)
            return self._read(torch.from_numpy(slots))

    def references(
        self,
        count: int,
        *,
        with_tasks: bool,
        with_weights: bool = False,
        weighted: bool = False,
    ) -> tuple[Batch, Tensor | None, Tensor | None] | None:
        """Return the batch of a `sample`, and its tasks and weights if asked for.

        That is all that a training step looks at; the rest of a sample takes it a fifth longer. As
        it reads the batch in one pass, the examples come in the order of their slots: so they are
        read a fifth faster.
        """
        place, read = self.storage.place, self.storage.read
        with self._lock:
            self._finish()
            with_tasks = with_tasks and self._ledger.has_tasks
            available = self._ledger.available
            if weighted or type(count) is not int or not 0 < count < available:
                slots = self._draw(count, False, in_order=True, weighted=weighted).get(_POOLED)
                if slots is None:
                    return None
                placed = place(slots)
            else:
                drawn = self._draws.take_one(count, available)
                slots, placed = drawn.ordered, self._placed(drawn)
            return (
                self._collated(read(placed), self.collate),
                place(self._columns()[0].index_select(0, slots)) if with_tasks else None,
                self._weights(slots) if with_weights else None,
            )

    def _placed(self, drawn: Draw) -> Tensor:
        """Return slots on the storage's device, where several draws of a block come at a time."""
        block, storage = drawn.block, self.storage
        if storage.on_host or len(block) == 1:
            return storage.place(drawn.ordered)
        together = max(1, _MOST_AT_ONCE // drawn.ordered.nbytes)
        first, held = drawn.row - drawn.row % together, self._block
        if held is None or held[0] is not block or held[1] != first:
            rows = storage.place(block[first : first + together]).unbind()
            self._block = held = block, first, rows
        return held[2][drawn.row - first]

    def last(self, count: int) -> dict[int, Sample]:
        """Return the last ``count`` examples of each task, by slot, and all where there are fewer.

        Nothing is drawn: they are the same until examples come or go.
        """
        positive("count", count)
        with self._lock:
            self._finish()
            groups = self._ledger.slots_by_task() if self._ledger.available else {}
            return {
                task: self._read(torch.from_numpy(slots[-count:])) for task, slots in groups.items()
            }

    def _weights(self, slots: Tensor) -> Tensor | None:
        """Return the weights of some slots, on the storage's device; None where there are none."""
        weights = self._ledger.weights
        if weights is None:
            return None
        return self.storage.place(torch.from_numpy(weights[slots.numpy()]).float())

    def _draw(
        self, count: int, by_task: bool, *, in_order: bool, weighted: bool = False
    ) -> dict[int, Tensor]:
        """Return slots drawn without replacement: of each task, or of all; none of nothing."""
        if type(count) is not int or count < 0:
            count = natural("count", count)
        available = self._ledger.available
        if not available:
            return {}
        if not by_task and not weighted:
            return {_POOLED: self._draws.take(count, available, in_order=in_order)}
        groups = self._ledger.slots_by_task() if by_task else {_POOLED: np.arange(available)}
        draws = {task: self._choose(slots, count, weighted) for task, slots in groups.items()}
        return {
            task: torch.from_numpy(np.sort(slots) if in_order else slots)
            for task, slots in draws.items()
        }

    def _draw_stratified(self, count: int, by: str, weighted: bool) -> dict[int, Tensor]:
        """Return slots drawn without replacement, equally many of each class or task."""
        count, ledger, generator = natural("count", count), self._ledger, self._draws.generator
        if not ledger.available:
            return {}
        if by == "class":
            self._read_labels()
        found = ledger.slots_by_task() if by == "task" else ledger.slots_by_label()
        if count >= ledger.available:
            return {_POOLED: torch.arange(ledger.available, device="cpu")}
        groups = [*found.values()]
        shares = spread(count, np.array([len(slots) for slots in groups]), generator).tolist()
        chosen = [
            self._choose(slots, share, weighted)
            for slots, share in zip(groups, shares, strict=True)
        ]
        return {_POOLED: torch.from_numpy(generator.permutation(np.concatenate(chosen)))}

    def _choose(self, slots: Indices, count: int, weighted: bool) -> Indices:
        """Return some of these slots, in a random order; all in order if there are no more."""
        weights = self._ledger.weights if weighted else None
        if weights is None:
            return slots[draw(len(slots), count, self._draws.generator, shuffle=True)]
        return slots[draw_weighted(weights[slots], count, self._draws.generator)]

    def _columns(self) -> list[Tensor]:
        """Return the tasks, the labels and the numbers by slot, as tensors on the host."""
        if self._table is not self._ledger.table:
            # The views first: an interruption never leaves those of another table.
            self._views = [torch.from_numpy(column) for column in self._ledger.table]
            self._table = self._ledger.table
        return self._views

    def _read(self, slots: Tensor, collate: Collate | None = None) -> Sample:
        ledger, place = self._ledger, self.storage.place
        batch = self._collated(self.storage.read(place(slots)), collate)
        tasks, labels, numbers = (column.index_select(0, slots) for column in self._columns())
        return Sample(
            batch,
            place(tasks) if ledger.has_tasks else None,
            self._place_labels(labels, slots) if ledger.has_labels else None,
            numbers.tolist() if ledger.numeric else [ledger.ids[slot] for slot in slots.tolist()],
            self._weights(slots),
        )

    def _place_labels(self, labels: Tensor, slots: Tensor) -> Tensor:
        """Return the labels of some slots on the storage's device, which is not waited for."""
        place, column = self.storage.place, self._label_column
        unread = None if column is None else labels == UNREAD
        if column is None or unread is None or not unread.any():
            return place(labels)
        own = self.storage.labels_in(column, place(slots))
        return torch.where(place(unread), own, place(labels))

    def examples(self) -> Iterator[Example]:
        """Iterate over the metadata of everything that is held now, in slot order."""
        with self._lock:
            self._settle()
            return iter(list(self._ledger.examples()))

    def read(self, slots: Integers) -> Sample:
        """Return the examples in these slots, available or not."""
        wanted = np.array(integers("slots", slots, None), np.int64)
        with self._lock:
            self._settle()
            if not len(self) or ((wanted < 0) | (wanted >= len(self))).any():
                raise EngramError(
                    f"The memory holds the slots 0 to {len(self) - 1}; not {shown(slots)}."
                )
            return self._read(torch.from_numpy(wanted))

    @property
    def blocks(self) -> list[Block]:
        """The records of the subjects that are blocked."""
        return list(self._blocks.entries.values())

    def block(self, tags: Tags, reason: str = "") -> None:
        """Refuse new examples that have all these tags, or skip them (``blocked`` of the class).

        Those that are held stay: `erase` with ``block=True`` lets them go as well.
        """
        subject, when = checked_subject(tags), _now()
        _check_reason(reason)
        with self._lock:
            self._settle()
            self._blocks = self._blocks.with_subject(subject, when, reason)

    def unblock(self, tags: Tags) -> None:
        """Take new examples of a subject again; the tags are all those that it was blocked by."""
        subject = checked_subject(tags)
        with self._lock:
            self._settle()
            self._blocks = self._blocks.without(subject)

    def erase(
        self,
        ids: Ids | None = None,
        where: Where | None = None,
        reason: str = "",
        *,
        block: bool = False,
    ) -> Erasure:
        """Erase examples for good, by id or by metadata, and return the record of it.

        ``where`` is a function of an `Example`, or the values its fields must have:
        ``{"task": 3, "label": 7, "tags": {"customer": "x"}}``. An id that is not held is recorded
        too, and never enters. What interrupts it finds all of it erased and recorded, or nothing.

        With ``block`` new examples with the tags that ``where`` asks for are refused from then on,
        whatever their ids: see `block`.
        """
        _check_reason(reason)
        subject = _subject_of(where, block)
        with self._lock:
            self._settle()
            leaving = self._ledger.selected(ids, where)
            record = Erasure(_now(), tuple(leaving), reason)
            blocks = self._blocks
            if subject is not None:
                blocks = blocks.with_subject(subject, record.when, reason)
            self._erase(record, blocks)
            return record

    def _erase(self, record: Erasure, blocks: Blocks) -> None:
        """Let examples leave the ledger, record it, and clear their rows."""
        ledger = self._ledger
        try:
            ledger.begin()
            moves = ledger.drop(record.ids)
            ledger.note(vars(self).update, {"_blocks": self._blocks})
            self._blocks = blocks
            ledger.note(self.erasures.__delitem__, slice(len(self.erasures), None))
            self.erasures.append(record)
            self._write(self.storage.stage([], [], moves))
        except BaseException:
            self._finish()
            raise

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of everything as tensors and JSON values, the generators included."""
        with self._lock:
            self._settle()
            state = self._state()
            rows = state["storage"]["rows"]
            rows.update({place: tensor.clone() for place, tensor in rows.items()})
            return state

    def _state(self) -> dict[str, Any]:
        """Return `state_dict` with the storage's own rows: for a file, they need no copy."""
        blocks = (
            torch.from_numpy(to_bytes(self._blocks.to_json())) if self._blocks.entries else None
        )
        given = None if self.max_bytes is None else self._given_max_examples()
        return {
            **({} if blocks is None else {"blocks": blocks}),
            **({} if given is None else {"max_examples": given}),
            "max_bytes": self.max_bytes,
            "draws": to_tensors(self._draws.state_dict()),
            "erasures": torch.from_numpy(to_bytes(self.erasures)),
            "ledger": to_tensors(self._ledger.state_dict()),
            "storage": self.storage.state_dict(len(self)),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict` of the same policy and kind of storage, bit for bit."""
        names = {"max_bytes", "draws", "erasures", "ledger", "storage"}
        if not isinstance(state, Mapping) or state.keys() - {"blocks", "max_examples"} != names:
            held = [*state] if isinstance(state, Mapping) else shown(state)
            raise EngramError(f"A memory's state holds {sorted(names)}, and this one {held}.")
        with UntrustedInput():
            ledger, draws = Ledger(self.policy), Draws(0)
            ledger.lock = self.storage.lock
            ledger.load_state_dict(to_arrays(state["ledger"]))
            draws.load_state_dict(to_arrays(state["draws"]))
            erasures = _load_erasures(from_bytes(state["erasures"].cpu().numpy()))
            parts = {
                "_ledger": ledger,
                "_draws": draws,
                "erasures": erasures,
                "max_bytes": state["max_bytes"],
                "_max_examples": _loaded_max_examples(state, ledger.max_examples),
                "_blocks": self._loaded_blocks(state),
            }
            with self._lock:
                self._settle()
                try:
                    self._replace(self._filled(state, ledger), parts)
                except BaseException:
                    self._finish()
                    raise

    def _loaded_blocks(self, state: Mapping[str, Any]) -> Blocks:
        own = self._blocks if self._blocks.secret else Blocks()
        if "blocks" not in state:
            return own._replace(entries={})
        return own.from_json(from_bytes(state["blocks"].cpu().numpy()))

    def _replace(self, storage: dict[str, Any], parts: dict[str, Any]) -> None:
        """Take over what a state holds; what interrupts this no longer undoes it."""
        self._redo = (self._replace, storage, parts)
        vars(self.storage).update(storage)
        vars(self).update(parts)
        self._redo = None

    def _filled(self, state: Mapping[str, Any], ledger: Ledger) -> dict[str, Any]:
        """Return what the storage is when it is filled with as many rows as the ledger knows."""
        max_bytes, stored = state["max_bytes"], state["storage"]
        if max_bytes is not None:
            positive("max_bytes", max_bytes)
        lengths = {len(rows) for rows in stored.get("lengths", stored["rows"]).values()}
        if stored["kind"] == "mapped" and isinstance(self.storage, MappedStorage):
            lengths = {len(ledger)} if len(ledger) <= stored["allocated"] else {-1}
            lengths = lengths if stored["files"] or len(ledger) else set()
        shapeless = not lengths or stored["structure"] is None
        if lengths - {len(ledger)} or (len(ledger) and shapeless):
            raise EngramError(f"The state has other rows than those of {len(ledger)} examples.")
        ragged = stored["kind"] == RaggedStorage.kind
        if self._chooses_storage and not self.storage.rows:
            self._choose_storage(ragged)
        rows = ledger.rows(len(ledger), at_once=max_bytes is not None and not ragged)
        filled = object.__new__(type(self.storage))
        vars(filled).update(vars(self.storage))
        filled.load_state_dict(stored, rows)
        if isinstance(filled, RaggedStorage) and max_bytes is not None and len(ledger):
            sizes = ledger.sizes
            own = filled.nbytes_of(range(len(ledger)))
            refuse_unless("sizes", sizes is not None and sizes.tolist() == own)
        return vars(filled)

    def resize(
        self,
        policy: Policy | int | None = None,
        *,
        max_examples: int | EllipsisType | None = ...,
        max_bytes: int | EllipsisType | None = ...,
    ) -> None:
        """Go on with another policy, another capacity or another budget; whole or not at all.

        What the new one keeps of what is held stays, with ids, tags, tasks, labels, weights and
        times; what was erased or blocked stays so. Which examples these are is drawn, where it is
        drawn, by the memory's own generator.

        - `Fifo` and `ClassRing`: the newest, in the order in which they came. Where that is not
          known, of uniform samples or when classes become a pool, it is by task, time and number.
        - `Reservoir` and `ClassSample`: a uniform sample of what is held. When classes become a
          pool, one of all that came, as far as what is held allows.
        - In a larger memory places are free, and filled by whatever comes next: these examples are
          then more likely to be in a uniform sample than those that came before them.
        - What could be sampled can be sampled.

        Rows are copied into new ones, so that both are held for a while.
        """
        with self._lock:
            self._settle()
            policy = self.policy if policy is None else _with_capacity(self.policy, policy)
            size = self._example_nbytes()
            if max_examples is ...:
                max_examples = self._given_max_examples()
            elif max_examples is not None:
                positive("max_examples", max_examples)
            if max_bytes is ...:
                max_bytes = self.max_bytes
            elif max_bytes is not None:
                positive("max_bytes", max_bytes)
            bounds = max_examples, max_bytes, size
            ledger, slots = self._resized(policy, *bounds, self._held_sizes(max_bytes))
            at_once = max_bytes is not None and size is not None
            storage = {}
            if self.storage.rows:
                rows = ledger.rows(len(ledger), at_once=at_once)
                storage = self.storage.selected(torch.from_numpy(slots), rows)
            parts = {
                "_ledger": ledger,
                "policy": policy,
                "max_bytes": max_bytes,
                "_max_examples": max_examples,
            }
            self._swap(storage, parts)

    def map(self, function: Callable[[Batch], Batch], *, batch: int = 1024) -> None:
        """Give all examples other columns: those that ``function`` returns for a batch of them.

        It is called with ``batch`` examples at a time, in the structure in which they were added,
        and returns as many in any one structure. All are changed, or none. Ids, tags, tasks,
        labels, weights and times stay, and so does what was erased or blocked. A budget in bytes
        that they would not fit in any more is an error. Old and new columns are held for a while.
        """
        positive("batch", batch)
        if not callable(function):
            raise EngramError(f"function is {shown(function)}; give one of a batch of examples.")
        if isinstance(self.storage, IndexStorage):
            raise EngramError("A memory of indices has no columns of its own; map its data.")
        with self._lock, ExitStack() as undone:
            self._settle()
            before, held = self._ledger, len(self)
            state = self._ledger.ids.copy(), self.storage.rows, len(self.erasures)
            if not held:
                raise EngramError("The memory holds no examples yet, and so no columns to map.")
            storage: TensorStorage | None = None
            given = self._given_max_examples()
            for start in range(0, held, batch):
                slots = range(start, min(start + batch, held))
                own = function(self.storage.read(self.storage.place(torch.tensor(slots))))
                if storage is None:
                    storage = self._empty_storage(has_ragged(own))
                    undone.callback(storage.discard)
                tensors = storage.check(own)
                if len(tensors[0]) != len(slots):
                    raise EngramError(
                        f"The function returned {len(tensors[0])} examples for {len(slots)}; "
                        "it must return as many as it is given."
                    )
                self._check_values(storage.values(tensors))
                if not storage.rows:
                    ragged = isinstance(storage, RaggedStorage)
                    size = None if ragged else example_nbytes(tensors)
                    storage.resize(self._rows_for(held, size), own)
                storage.commit(storage.stage([*slots], tensors))
            assert storage is not None
            sizes = None
            if self.max_bytes is not None and isinstance(storage, RaggedStorage):
                sizes = storage.nbytes_of(range(held))
                if sum(sizes) > self.max_bytes:
                    raise self._too_many_bytes(sum(sizes))
            if (self._ledger.ids, self.storage.rows, len(self.erasures)) != state or (
                self._ledger is not before
            ):
                raise EngramError("The function changed the memory whose examples it was given.")
            ledger, _ = self._resized(self.policy, given, self.max_bytes, size, sizes)
            storage.lock = self._lock
            same = type(storage) is type(self.storage)
            parts = {"_ledger": ledger} if same else {"_ledger": ledger, "storage": storage}
            undone.pop_all()
            self._swap(storage.contents() if same else {}, parts)

    def _check_values(self, tensors: list[Tensor]) -> None:
        """Refuse values that are not finite, wherever they are."""
        if not self.allow_nonfinite:
            magnitude = _magnitude(tensors)
            if magnitude is not None and not magnitude < math.inf:
                raise _not_finite(tensors)

    def _rows_for(self, held: int, size: int | None) -> int:
        """Return how many rows examples of another size need, or refuse what would not fit."""
        if self.max_bytes is None or size is None:
            return self._ledger.rows(held, at_once=False)
        if size * held > self.max_bytes:
            raise self._too_many_bytes(size * held)
        most, given = self.max_bytes // max(size, 1), self._given_max_examples()
        limits = [most if given is None else min(most, given)]
        if not self.policy.by_class:
            limits.append(self.policy.group_limit)
        return min(limits)

    def _empty_storage(self, ragged: bool) -> TensorStorage:
        """Return a storage for other columns."""
        own = self.storage
        if ragged and isinstance(own, MappedStorage):
            raise EngramError(
                "The function returned a Ragged column, and those of a MappedStorage are of one "
                "length; save a copy of the memory to a file, and map what is loaded from it."
            )
        kind = (
            RaggedStorage if ragged else TensorStorage if isinstance(own, RaggedStorage) else None
        )
        return own.empty() if kind is None or kind is type(own) else kind(own.device)

    def _swap(self, storage: dict[str, Any], parts: dict[str, Any]) -> None:
        try:
            self._replace(storage, parts)
        except BaseException:
            self._finish()
            raise

    def _resized(
        self,
        policy: Policy,
        max_examples: int | None,
        max_bytes: int | None,
        size: int | None,
        sizes: list[int] | None,
    ) -> tuple[Ledger, Indices]:
        """Return a ledger with another policy and budget, and the slots of what it keeps."""
        if max_bytes is not None and size is not None:
            _check_budget(max_bytes, size)
            most = max_bytes // max(size, 1)
            max_examples = most if max_examples is None else min(max_examples, most)
        elif max_bytes is not None and sizes is not None:
            _check_budget(max_bytes, max(sizes, default=0))
        own = None if sizes is None else max_bytes
        ledger, slots = self._ledger.resized(policy, max_examples, own, sizes)
        ledger.lock = self._lock
        return ledger, slots

    def _example_nbytes(self) -> int | None:
        """Return the bytes of every example; None where they differ, or none has come yet."""
        if isinstance(self.storage, RaggedStorage) or not self.storage.rows:
            return None
        return self.storage.nbytes // self.storage.rows

    def _held_sizes(self, max_bytes: int | None) -> list[int] | None:
        if max_bytes is None or not isinstance(self.storage, RaggedStorage):
            return None
        return self.storage.nbytes_of(range(len(self)))

    def _given_max_examples(self) -> int | None:
        """Return the budget in examples as it was given, without that of a budget in bytes."""
        if self._max_examples is not ...:
            return self._max_examples
        own, size = self._ledger.max_examples, self._example_nbytes()
        by_bytes = None if self.max_bytes is None or not size else self.max_bytes // size
        return None if own == by_bytes else own

    def _too_many_bytes(self, nbytes: int) -> EngramError:
        return EngramError(
            f"max_bytes is {self.max_bytes:,}, less than the {nbytes:,} bytes that the "
            f"{len(self):,} examples would take; resize the memory first."
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one safetensors file; a failure leaves an older file as it was.

        An `IndexStorage` saves its indices, not the data. A memory in a `MappedStorage` is saved in
        place where ``path`` is its folder, without a copy; to any other path it is a file as usual,
        made by way of main memory.
        """
        with self._lock:  # no row may change between the checksum and the writing
            self._settle()
            if isinstance(self.storage, MappedStorage) and self.storage.is_at(path):
                self._save_in_place(self.storage)
                return
            state = self._state()
            files.write(path, state, _least_version(state))

    def _save_in_place(self, storage: MappedStorage) -> None:
        try:
            rows = storage.folder_state()
            files.write(storage.folder / MEMORY, {**self._state(), "storage": rows}, 3)
            storage.saved()
        except OSError as error:
            raise EngramError(
                f"The memory could not be saved in {str(storage.folder)!r}: {error}."
            ) from error

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        device: torch.device | str | None = None,
        *,
        storage: TensorStorage | None = None,
        allow_nonfinite: bool = False,
        collate: Collate | None = None,
        blocked: Literal["refuse", "skip"] = "refuse",
        secret: bytes | None = None,
    ) -> Memory:
        """Return the memory that `save` wrote; it goes on as the saved one would have, bit for bit.

        A folder is opened in place, as a `MappedStorage`. ``device`` is where the tensors go. A
        memory of indices needs ``storage``, an `IndexStorage` of the same data.
        ``allow_nonfinite`` is for what is added from now on; ``collate`` is a function, and not
        saved; nor are ``blocked`` and ``secret``, as the class has them.
        """
        with UntrustedInput():
            if _is_folder(path):
                if storage is not None:
                    raise EngramError(f"The memory {path} is a folder, which is its own storage.")
                storage = MappedStorage.opened(path)
                state = files.read(storage.folder / MEMORY)
                if state["storage"]["kind"] != "mapped":
                    raise EngramError(f"The folder {path} holds a memory file, and not a memory.")
            else:
                state = files.read(path)
            if state["storage"]["kind"] == "indices" and storage is None:
                raise EngramError(
                    f"The memory {path} holds indices into data; give storage=IndexStorage(data)."
                )
            policy = policy_from_json(state["ledger"]["policy"])
            kind = RaggedStorage if state["storage"]["kind"] == "ragged" else TensorStorage
            memory = cls(
                policy,
                kind(device) if storage is None else storage,
                allow_nonfinite=allow_nonfinite,
                collate=collate,
                blocked=blocked,
                secret=secret,
            )
            memory._chooses_storage = storage is None
            memory.load_state_dict(state)
            return memory

    def __getstate__(self) -> dict[str, Any]:
        """Return a copy of what may change: it is read later than it is asked for."""
        with self._lock:
            parts = self._parts()
            changing = {name: parts.pop(name) for name in ("_ledger", "_draws", "erasures")}
            return {**parts, **copy.deepcopy(changing), "storage": copy.copy(self.storage)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # What a pickle of an earlier version does not have is as in a new memory.
        vars(self).update(vars(Memory(state["policy"])) | {"_max_examples": ...} | state)
        self._lock = self._ledger.lock = self.storage.lock

    def __deepcopy__(self, memo: dict[int, Any]) -> Memory:
        """Return a copy of everything as it is between two changes."""
        with self._lock:
            return deep_copy(self, self._parts(), memo)

    def _parts(self) -> dict[str, Any]:
        """Return all but the views and the lock: those of a copy are its own."""
        self._settle()
        others: dict[str, Any] = {
            "_table": None,
            "_views": [],
            "_block": None,
            "_unsettled": [],
            "_source": None,
        }
        parts = {**vars(self), **others}
        del parts["_lock"]
        return parts
