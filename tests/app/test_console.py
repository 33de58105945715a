"""What is printed loses nothing, however narrow the terminal is, and wherever it goes."""

import json
import os
import pty
import re
import subprocess
import sys

import pytest

from engram.app.runs import Store


@pytest.fixture
def long_named(tmp_path, make_row):
    """Return a store whose table is as wide as it may be: a method in it has a long name."""
    path = tmp_path / "store.sqlite"
    with Store(path) as store:
        store.add([make_row(fault="x" * 300)])
    return path


@pytest.mark.parametrize(("columns", "wanted"), [(40, 80), (80, 80), (100, 100)])
def test_a_narrow_terminal_has_the_width_that_a_table_needs(
    monkeypatch, engram, long_named, columns, wanted
):
    master, slave = pty.openpty()
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(master, "rb", 0) as shown, os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr("sys.stdout", terminal)
        engram("results", "--store", long_named)
        lines = re.sub(r"\x1b\[[\d;]*m", "", shown.read(1 << 16).decode()).splitlines()
    assert max(map(len, lines)) == wanted


def test_a_file_has_the_width_of_any_table(monkeypatch, engram, long_named):
    monkeypatch.setenv("COLUMNS", "40")
    lines = engram("results", "--store", long_named).out.splitlines()
    assert max(map(len, lines)) == 160


def test_an_empty_store_says_so_and_not_where_an_object_is_asked_for(tmp_path, engram):
    path = tmp_path / "store.sqlite"
    Store(path).close()
    assert engram("results", "--store", path) == (0, "", f"There are no results in {path}.\n")
    _, out, err = engram("results", "--store", path, "--json")
    assert (json.loads(out), err) == ({"results": [], "choices": []}, "")


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_no_stream_and_no_mistake(tmp_path, closed):
    store, found = tmp_path / "store.sqlite", tmp_path / "found"
    words = "run permuted-mnist van --tasks 1 --examples 10 --seeds 1 --set curve_images=10 --json"
    out = "" if closed.startswith(">") or " >" in closed else f'> "{found}"'
    line = f'"{sys.executable}" -m engram {words} --store "{store}" --device cpu {out} {closed}'
    done = subprocess.run(["sh", "-c", line], check=False, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    with Store(store, read_only=True) as held:
        assert len(held.rows()) == 1
    if out:
        assert json.loads(found.read_text())["results"][0]["seeds"] == 1
