"""Rows in files that are mapped into memory: for more examples than main memory has room for."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engram.errors import EngramError, shown
from engram.memory.columns import Structure, row_dtype
from engram.memory.files import refuse_unless
from engram.memory.slots import Moves
from engram.memory.storage import Staged, TensorStorage

MEMORY = "memory.safetensors"
"""All of a memory but its rows, as of the last `Memory.save`."""
CHANGED = "changed"
"""Is there from the first row that is written until the next `Memory.save`."""
_LOCK = "lock"


class MappedStorage(TensorStorage):
    """Rows like those of a `TensorStorage`, in files of a new folder that are mapped into memory.

    The system reads them as needed and drops them when something else needs the room, so that what
    the process itself takes stays small. ``memory.save(folder)`` makes the folder a memory that
    ``Memory.load(folder)`` opens again, in place. What is on the disk is whole from a save until
    the next row is written; a folder whose process ended in between, in whatever way, is refused.
    Room on the disk is taken when rows are allocated: a full disk is an error and no crash.

    A folder is of one process at a time; what that process forks may read, and not write. A copy or
    a pickle of the memory has its rows in main memory. The files are their owner's alone (0600).
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        super().__init__("cpu")
        if _LOCK not in (found := _names(folder)):  # write nothing into what is somebody else's
            _refuse_used(folder, found)
        self._enter(folder)
        _refuse_used(folder, _names(folder))

    def _enter(self, folder: str | os.PathLike[str]) -> None:
        try:
            self.folder = Path(folder)
            self.folder.mkdir(0o700, parents=True, exist_ok=True)
            self._lock_file = _LockFile(self.folder / _LOCK)
        except (OSError, TypeError, ValueError) as error:
            raise EngramError(f"The folder {shown(folder)} cannot be used: {error}.") from error
        self._process = os.getpid()
        self._changed = False
        self._files: list[str] = []
        if not self._lock_file.taken:
            raise EngramError(
                f"The folder {str(self.folder)!r} is open already, here or in another process."
            )

    @classmethod
    def opened(cls, folder: str | os.PathLike[str]) -> MappedStorage:
        """Return the storage of a folder that holds a memory, before its state is loaded."""
        storage = object.__new__(cls)
        TensorStorage.__init__(storage, "cpu")
        storage._enter(folder)
        if (storage.folder / CHANGED).exists():
            raise EngramError(
                f"The memory {str(storage.folder)!r} was changed and not saved when its process "
                "ended, and what is there is not whole; use a copy that was saved."
            )
        return storage

    def is_at(self, path: str | os.PathLike[str]) -> bool:
        """Tell whether a path is that of this storage's folder."""
        with suppress(OSError, TypeError, ValueError):
            return self.folder.samefile(path)
        return False

    def allocate(self, shape: Sequence[int], dtype: torch.dtype, _: torch.device, /) -> Tensor:
        """Return rows of zeros in a new file, for which there is room on the disk."""
        name = f"rows-{uuid.uuid4().hex}.bin"
        nbytes = int(np.prod([*shape, dtype.itemsize], dtype=object))
        path = self.folder / name
        try:
            with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "r+b") as file:
                if nbytes and hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, nbytes)
                file.truncate(nbytes)
            rows = _mapped(path, shape, dtype)
        except (OSError, OverflowError) as error:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            raise RuntimeError(str(error)) from error
        self._new_files.append(name)
        return rows

    def resize(self, rows: int, batch: object) -> None:
        """Allocate this many rows for examples such as the batch's, and keep what is there."""
        with self._all_new_files() as files:
            super().resize(rows, batch)
        self._files = files

    def selected(self, slots: Tensor, rows: int) -> dict[str, Any]:
        """Return what changes where only the rows in these slots stay, as the first of ``rows``."""
        with self._all_new_files() as files:
            parts = super().selected(slots, rows)
        return {**parts, "_files": files}

    @contextmanager
    def _all_new_files(self) -> Iterator[list[str]]:
        """Take the names of the files that rows are allocated in: all of them, or none is left."""
        self._check_process()
        files: list[str] = []
        self._new_files = files
        try:
            yield files
        except BaseException:
            self._remove(files)
            raise

    def _remove(self, files: list[str]) -> None:
        for name in files:
            with suppress(OSError):
                (self.folder / name).unlink(missing_ok=True)

    def empty(self) -> TensorStorage:
        """Return a storage in the same folder that holds nothing.

        What is written to it is in files that the folder's memory does not know, and changes none.
        """
        own = object.__new__(type(self))
        TensorStorage.__init__(own, "cpu")
        names = ("folder", "_lock_file", "_process")
        vars(own).update({name: vars(self)[name] for name in names}, _files=[], _changed=True)
        return own

    def contents(self) -> dict[str, Any]:
        """Return what another storage takes over, which knows best whether its folder changed."""
        return {name: part for name, part in super().contents().items() if name != "_changed"}

    def discard(self) -> None:
        """Remove the files of rows that nothing has taken over."""
        self._remove(self._files)

    def stage(
        self,
        slots: list[int],
        tensors: list[Tensor],
        moves: Moves | None = None,
        valid: Tensor | None = None,
    ) -> Staged:
        """Return what writes each example to its slot, and mark the folder as changed first."""
        self._check_process()
        if not self._changed:
            try:
                with os.fdopen(
                    os.open(self.folder / CHANGED, os.O_CREAT | os.O_WRONLY, 0o600)
                ) as file:
                    os.fsync(file.fileno())
            except OSError as error:
                raise EngramError(
                    f"The memory {str(self.folder)!r} cannot be changed: {error}."
                ) from error
            self._changed = True
        return super().stage(slots, tensors, moves, valid)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise EngramError(
                "The memory's rows are files that another process writes; this one, which it has "
                "forked, may only read them."
            )

    def folder_state(self) -> dict[str, Any]:
        """Return what the folder's file holds of the rows, once they are on the disk for good."""
        self._check_process()
        for name in self._files:
            with (self.folder / name).open("rb+") as file:
                os.fsync(file.fileno())
        examples = [
            [list(shape), str(dtype).removeprefix("torch.")] for shape, dtype in self.examples
        ]
        return {
            "kind": "mapped",
            "structure": self._structure,
            "files": list(self._files),
            "examples": examples,
            "allocated": self.rows,
            "rows": {},
        }

    def saved(self) -> None:
        """Mark the folder as whole, and remove files of rows that are no longer used."""
        (self.folder / CHANGED).unlink(missing_ok=True)
        self._changed = False
        for path in self.folder.glob("rows-*.bin"):
            if path.name not in self._files:
                path.unlink(missing_ok=True)

    def load_state_dict(self, state: dict[str, Any], rows: int) -> None:
        """Take over the rows: those of the folder itself, or copies of others' in new files."""
        if state["kind"] != "mapped":
            super().load_state_dict(state, rows)
            return
        structure, names, allocated = state["structure"], state["files"], state["allocated"]
        refuse_unless("rows", type(allocated) is int and allocated >= 0)
        self._structure: Structure | None = structure
        self.examples, self._rows, self._files, self.rows = [], [], [], allocated
        for name, (shape, kind) in zip(names, state["examples"], strict=True):
            dtype = getattr(torch, kind)
            refuse_unless("rows", isinstance(dtype, torch.dtype) and Path(name).name == name)
            size = torch.Size(shape)
            held = (allocated, *size)
            self._rows.append(_mapped(self.folder / name, held, row_dtype(dtype)))
            self.examples.append((size, dtype))
            self._files.append(name)
        self._by_view = any(row_dtype(dtype) != dtype for _, dtype in self.examples)

    def __reduce__(self) -> tuple[Any, ...]:
        return _in_memory, (self.__getstate__(),)

    def __deepcopy__(self, memo: dict[int, Any]) -> TensorStorage:
        """Return a copy whose rows are in main memory."""
        copied = _in_memory(self.__getstate__())
        memo[id(self)] = copied
        return copied

    def _parts(self) -> dict[str, Any]:
        own = ("folder", "_lock_file", "_process", "_changed", "_files", "_new_files")
        return {name: part for name, part in super()._parts().items() if name not in own}


def _names(folder: str | os.PathLike[str]) -> set[str]:
    """Return what is in a folder: nothing, where it is none."""
    with suppress(OSError, TypeError, ValueError):
        return {path.name for path in Path(folder).iterdir()}
    return set()


def _refuse_used(folder: str | os.PathLike[str], found: set[str]) -> None:
    if MEMORY in found:
        raise EngramError(
            f"The folder {str(folder)!r} holds a memory already; open it by Memory.load."
        )
    if found - {_LOCK}:
        raise EngramError(f"The folder {str(folder)!r} is not empty; give a new one.")


class _LockFile:
    """A file that is locked while this is held, which ends with the process at the latest."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self.taken = True
        with suppress(ImportError):  # a system without such locks
            import fcntl

            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self.taken = False

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self._file)


def _in_memory(state: dict[str, Any]) -> TensorStorage:
    storage = object.__new__(TensorStorage)
    storage.__setstate__(state)
    return storage


def _mapped(path: Path, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return the tensor that a file holds, which writes to the file."""
    nbytes = int(np.prod([*shape, dtype.itemsize], dtype=object))
    try:
        size = path.stat().st_size
    except OSError as error:
        raise EngramError(f"The memory's rows {path.name} cannot be read: {error}.") from error
    if size != nbytes:
        raise EngramError(f"The memory's rows {path.name} are {size:,} bytes, and not {nbytes:,}.")
    if not nbytes:
        return torch.zeros(tuple(shape), dtype=dtype)
    with torch.inference_mode(False):
        numbers = np.memmap(path, np.uint8, "r+", shape=(nbytes,))
        return torch.from_numpy(numbers).view(dtype).view(tuple(shape))
