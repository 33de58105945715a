from contextlib import contextmanager

import pytest
import torch

from engram.lab.engine import CudaGraphLoop, cuda_graphs


@pytest.fixture
def _no_waiting(monkeypatch):
    """Refuse a step in which the host waits for the device."""
    advance = CudaGraphLoop.advance

    @contextmanager
    def watched(self, stop):
        torch.cuda.set_sync_debug_mode("error")
        try:
            with advance(self, stop) as steps:
                yield steps
        finally:
            torch.cuda.set_sync_debug_mode("default")

    # Recording a graph synchronises by itself: only plain steps are watched.
    monkeypatch.setattr(cuda_graphs, "WARM_UP", 10**9)
    monkeypatch.setattr(CudaGraphLoop, "advance", watched)
