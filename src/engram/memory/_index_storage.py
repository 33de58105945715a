"""Examples that are rows of data which is resident anyway."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from engram.errors import EngramError
from engram.memory._dtypes import as_rows
from engram.memory._structure import (
    Batch,
    check_kinds,
    check_lengths,
    describe,
    flatten,
    own_labels,
    rebuild,
)
from engram.memory._tensor_storage import TensorStorage


class IndexStorage(TensorStorage):
    """Indices into ``data``, a tuple or dict of tensors that share their first dimension.

    A batch is a one-dimensional integer tensor of indices; what is read are the rows they point at.
    The data is neither copied nor saved, and does not count in ``nbytes``.

    >>> storage = IndexStorage((torch.arange(10.0), torch.arange(10) % 3))
    >>> storage.labels(torch.tensor([4, 5]))
    tensor([1, 2])
    """

    kind = "indices"

    def __init__(self, data: object) -> None:
        self._data_structure = describe(data)
        self._data = flatten(self._data_structure, data)
        check_kinds(self._data)
        check_lengths(self._data)
        self._data_labels = own_labels(data)
        super().__init__(self._data[0].device)

    def check(self, batch: object) -> list[Tensor]:
        """Return the indices as the only tensor, or refuse what is no index into the data."""
        if not isinstance(batch, Tensor) or own_labels((batch,)) is None:
            raise EngramError(
                "A batch for an IndexStorage must be a one-dimensional integer tensor of indices."
            )
        indices = batch.to(torch.int64)
        self._check_range(indices)
        return [indices]

    def _check_range(self, indices: Tensor) -> None:
        size = len(self._data[0])
        if len(indices):
            least, most = int(indices.min()), int(indices.max())
            if least < 0 or most >= size:
                raise EngramError(
                    f"The index {least if least < 0 else most} is not among the data's "
                    f"{size} rows, 0 to {size - 1}."
                )

    def labels(self, batch: object) -> Tensor | None:
        """Return the labels of the rows, if the data is a tuple that ends with labels."""
        if self._data_labels is None or not isinstance(batch, Tensor):
            return None
        indices = batch.to(self._data_labels.device, torch.int64)
        labels = as_rows(self._data_labels).index_select(0, indices)
        return labels.view(self._data_labels.dtype)

    def values(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return the rows of the data that the indices point at."""
        return list(self._pointed_at(tensors[0]))

    def _pointed_at(self, indices: Tensor) -> Iterator[Tensor]:
        for part in self._data:
            rows = as_rows(part).index_select(0, indices.to(part.device))
            yield rows if rows.dtype == part.dtype else rows.view(part.dtype)

    def read(self, slots: Tensor) -> Batch:
        """Return the rows of the data that are in these slots, in the data's structure."""
        rows = self._pointed_at(self._rows[0].index_select(0, slots))
        return rebuild(self._data_structure, rows)

    def load_state_dict(self, state: dict[str, Any], rows: int) -> None:
        """Take over the indices, if they all point into the data."""
        if state["kind"] == self.kind:
            for indices in state["rows"].values():
                self._check_range(indices)
        super().load_state_dict(state, rows)
