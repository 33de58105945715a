"""``engram reproduce --dry-run``: what would run, on what, and for how long."""

import re

import pytest
from fake_laboratory import STUDY

from engram.app.studies import Taken


@pytest.fixture
def unpublished(monkeypatch):
    monkeypatch.setattr("engram.app.studies.published", list)


@pytest.mark.usefixtures("unpublished")
def test_a_dry_run_says_what_would_run_and_makes_nothing(ask_study, study, tmp_path):
    code, out, _ = ask_study(study(), dry_run=True)
    assert code == 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "Mine"
    assert "permuted-mnist 2 55,000 mega-ii 3 3 unknown unknown" in lines
    assert re.search(r"8 of 8 runs to do on cpu.*: how long is unknown, as no run", out)
    assert "*" not in out
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


def test_what_no_store_can_tell_is_told_by_what_was_published(ask_study, study, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    known = [
        Taken("NVIDIA H200", "permuted-mnist", "mega-ii", 2, 55_000, 1.0),
        Taken("cpu", "permuted-mnist", "mega-ii", 6, 55_000, 90.0),
        Taken("cpu", "permuted-mnist", "mega-ii", 20, 55_000, 9000.0),
        Taken("cpu", "permuted-mnist", "a-gem", 20, 55_000, 300.0),  # too far to tell
    ]
    monkeypatch.setattr("engram.app.studies.published", lambda: known)
    _, out, _ = ask_study(study(), dry_run=True)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "permuted-mnist 2 55,000 mega-ii 3 3 30 s* 90 s*" in lines
    assert "permuted-mnist 2 55,000 a-gem 3 3 unknown unknown" in lines
    published = "this is the time of a published one, on one CPU core."
    assert f"* The store has no run like it; {published}" in lines


@pytest.mark.usefixtures("unpublished")
def test_times_are_estimated_from_results_like_them(ask_study, study, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    ask_study(study(), seeds=1)
    # A run took 1.5 seconds, and three times as many tasks take three times as long.
    text = STUDY.replace(
        '["van", "mega-ii"]\nseeds = 2\ntasks = 2', '["van"]\nseeds = 9\ntasks = 6'
    )
    _, out, _ = ask_study(study(text.replace('"mega-ii"]', '"multi-task"]')), dry_run=True)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "permuted-mnist 6 55,000 van 9 9 4 s 40 s" in lines
    assert "permuted-mnist 2 55,000 a-gem 3 2 2 s 3 s" in lines
    assert "permuted-mnist 2 55,000 multi-task 3 3 unknown unknown" in lines
    told = "14 of 15 runs to do on cpu, 2 side by side: about 22 s, and an unknown time for 3 runs."
    assert told in lines
