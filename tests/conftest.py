"""What all tests have in common."""

import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from engram.app.cli import main

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


class Answer(NamedTuple):
    """What a command has come to."""

    code: int
    out: str
    err: str


@pytest.fixture
def engram(monkeypatch, capsys):
    """Give a command in this process; return its exit code and what was printed.

    Options may be named: ``seeds=2``, ``json=True``, ``settings=("key=value",)``.
    """

    def call(*words, **options):
        typed = [*map(str, words), *_typed(options)]
        monkeypatch.setattr(sys, "argv", ["engram", *typed])
        with pytest.raises(SystemExit) as ended:
            main()
        return Answer(ended.value.code, *capsys.readouterr())

    return call


def _typed(options):
    words = []
    for name, value in options.items():
        option = "--set" if name == "settings" else f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words += [option] * value
        else:
            for each in value if isinstance(value, tuple) else (value,):
                words += [option, str(each)]
    return words
