"""What all tests have in common."""

from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
NUMERICAL = ("engine", "gradients", "rules")  # folders; elsewhere a module says it of itself
SEVERAL_PROCESSES = {"test_parallel.py", "test_lightning.py"}  # too long for six times over


def pytest_collection_modifyitems(items):
    """Mark what floating-point arithmetic decides, for `make test-portable`."""
    for item in items:
        inside = any(item.path.is_relative_to(HERE / folder) for folder in NUMERICAL)
        if inside and item.path.name not in SEVERAL_PROCESSES:
            item.add_marker(pytest.mark.numerical)


@pytest.fixture(scope="session", autouse=True)
def _as_many_threads_as_before():
    """Let no test leave the others another number of threads than they were started with."""
    before = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == before
