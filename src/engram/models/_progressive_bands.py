"""The hidden layers of an MLP's frozen columns, several columns in one product."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from torch import Tensor

Layer = tuple[Tensor, Tensor]  # weight and bias

_BAND = 4  # frozen columns in one product: fewer make many products, more make them mostly zeros


class Bands:
    """For each hidden layer: the frozen columns, _BAND of them side by side in a matrix.

    Its rows are the inputs of all columns so far, with zeros where a column does not read.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._layers: list[list[Layer]] = [[] for _ in sizes[2:]]

    def clear(self) -> None:
        """Hold no column."""
        for bands in self._layers:
            bands.clear()

    def freeze(self, index: int, layers: Iterable[Layer]) -> None:
        """Write the hidden layers of column ``index``, which comes next, into the bands."""
        place = index % _BAND
        for layer, (bands, (weight, bias)) in enumerate(zip(self._layers, layers, strict=False)):
            (runs, _, outputs), inputs = weight.shape, self._sizes[layer]
            if place == 0:
                rows, width = inputs * (index + _BAND if layer else 1), outputs * _BAND
                bands.append((weight.new_zeros(runs, rows, width), bias.new_zeros(runs, 1, width)))
            part = slice(place * outputs, (place + 1) * outputs)
            bands[-1][0][:, : weight.shape[1], part] = weight
            bands[-1][1][..., part] = bias

    def products(self, layer: int, count: int) -> Iterator[Layer]:
        """Yield a layer's products for the first ``count`` columns, a band each.

        There are none at the logits, which nobody reads of a frozen column.
        """
        if layer == len(self._layers):
            return
        inputs, outputs = self._sizes[layer : layer + 2]
        for start, (weight, bias) in zip(range(0, count, _BAND), self._layers[layer], strict=False):
            end = min(start + _BAND, count)
            rows, width = inputs * (end if layer else 1), outputs * (end - start)
            yield weight[:, :rows, :width], bias[..., :width]
