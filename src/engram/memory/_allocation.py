"""Room for rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def allocate(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a tensor of zeros; on the host, what nobody has written to takes no memory.

    There it is numpy's, which asks for large pages where there is much of it: rows that lie far
    apart are then read an eighth faster.
    """
    count = math.prod(shape)
    with torch.inference_mode(False):  # what is made in inference mode cannot be written after it
        if device.type != "cpu" or not count:
            return torch.zeros(tuple(shape), dtype=dtype, device=device)
        numbers = np.zeros(count * dtype.itemsize, np.uint8)
        return torch.from_numpy(numbers).view(dtype).view(tuple(shape))
