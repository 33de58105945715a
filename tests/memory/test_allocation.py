"""Rows of any shape and dtype: what is added is read back, whatever an example is like."""

import pytest
import torch

from engram.errors import EngramError
from engram.memory import Fifo, Memory, Reservoir

DTYPES = [torch.uint8, torch.bool, torch.bfloat16, torch.float32, torch.int64, torch.complex128]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (2, 3), (784,)], ids=str)
def test_examples_of_any_shape_and_dtype_are_read_as_they_were_added(shape, dtype):
    memory = Memory(Fifo(1500))  # allocated in full by the first batch, and zero until written
    values = torch.randint(2, (3, *shape)).to(dtype)
    for part in (values[:1], values[1:]):
        memory.add(part)
    rows = memory.read([0, 1, 2]).batch
    assert (rows.shape, rows.dtype, rows.device.type) == (values.shape, dtype, "cpu")
    assert torch.equal(rows, values)
    assert memory.nbytes == 1500 * shape_size(shape) * dtype.itemsize


def shape_size(shape):
    return torch.empty(shape).numel()


@pytest.mark.parametrize("count", [2**40, 2**62])
def test_too_much_is_refused(count):
    memory = Memory(Reservoir(count))
    with pytest.raises(EngramError, match=f"cannot allocate {count:,} rows"):
        memory.add(torch.zeros(2, 1000))
    assert len(memory) == 0
