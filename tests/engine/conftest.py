"""Without a GPU, Triton's kernels are interpreted; it wants to know before it is imported."""

import importlib
import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(scope="session")
def interpreted():
    """Return a function that imports a module of kernels, to be interpreted."""
    pytest.importorskip("triton", reason="needs Triton")
    if torch.cuda.is_available():
        pytest.skip("kernels are compiled, and tested on the GPU")
    return importlib.import_module
