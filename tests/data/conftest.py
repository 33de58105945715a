import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Give each test a cache of its own, and no data folder of the user's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ENGRAM_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "*")  # the server of these tests is on this machine
    return tmp_path / "cache" / "engram"


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "data"
    path.mkdir()
    return path
