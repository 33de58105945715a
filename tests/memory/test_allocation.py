"""Room for rows of any shape and dtype."""

import pytest
import torch

from engram.memory.storage import allocate

CPU = torch.device("cpu")
DTYPES = [torch.uint8, torch.bool, torch.bfloat16, torch.float32, torch.int64, torch.complex128]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (4, 2, 3), (1500, 784)], ids=str)
def test_it_can_be_written_and_read_as_any_other(shape, dtype):
    rows = allocate(shape, dtype, CPU)
    assert (rows.shape, rows.dtype, rows.device) == (shape, dtype, CPU)
    assert rows.is_contiguous()
    values = torch.randint(2, shape).to(dtype)
    rows.copy_(values)
    assert torch.equal(rows, values)


@pytest.mark.parametrize("count", [2**40, 2**62, 2**70])
def test_too_much_is_refused(count):
    with pytest.raises((MemoryError, ValueError)):
        allocate((count, 100), torch.float32, CPU)
