"""What is printed loses nothing, however narrow the terminal is."""

import os
import pty

import pytest

from engram.cli._console import stdout_console


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
