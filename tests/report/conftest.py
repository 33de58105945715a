import pytest


@pytest.fixture
def list_stand_ins(monkeypatch):
    """Let these be what stands in for the paper's data, by the data that they are filed under."""

    def listed(known):
        monkeypatch.setattr("engram.app.report.stand_ins.known_stand_ins", lambda: known)

    return listed
