"""Without a GPU, Triton's kernels are interpreted; it wants to know before it is imported."""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
