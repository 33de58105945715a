"""What is printed loses nothing, however narrow the terminal is, and wherever it goes."""

import json
import os
import pty
import subprocess
import sys

import pytest

from engram.app.cli.console import stdout_console
from engram.app.runs import Store


@pytest.mark.parametrize(("columns", "wanted"), [(40, 80), (80, 80), (100, 100)])
def test_a_narrow_terminal_has_the_width_that_a_table_needs(monkeypatch, columns, wanted):
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as terminal, os.fdopen(master):
        monkeypatch.setattr("sys.stdout", terminal)
        monkeypatch.setenv("COLUMNS", str(columns))
        assert stdout_console().width == wanted


def test_a_file_has_the_width_of_any_table(monkeypatch, tmp_path):
    with (tmp_path / "file").open("w") as file:
        monkeypatch.setattr("sys.stdout", file)
        monkeypatch.setenv("COLUMNS", "40")
        assert stdout_console().width == 160


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
