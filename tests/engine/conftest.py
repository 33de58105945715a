"""Without a GPU, Triton's kernels are interpreted; it wants to know before it is imported."""

import importlib
import os

import numpy as np
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
    before = np.seterr(all="ignore")  # a GPU does not warn, and what is masked may be anything
    yield importlib.import_module
    np.seterr(**before)


@pytest.fixture(autouse=True)
def _same_numbers():
    torch.manual_seed(0)
