import pytest
import torch

from engram.engine import Recorded, _recorded


@pytest.fixture
def _no_waiting(monkeypatch):
    """Refuse a step in which the host waits for the device."""
    take = Recorded.take

    def watched(self, step, stop):
        torch.cuda.set_sync_debug_mode("error")
        try:
            return take(self, step, stop)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    # Recording a graph synchronises by itself: only plain steps are watched.
    monkeypatch.setattr(_recorded, "WARM_UP", 10**9)
    monkeypatch.setattr(Recorded, "take", watched)
