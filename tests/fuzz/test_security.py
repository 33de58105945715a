"""What SECURITY.md promises of the sources and of the files that are made."""

import ast
import os
import stat
import sys
from pathlib import Path

import pytest
import torch

import engram
from engram.cli import main
from engram.memory import Fifo, Memory

SOURCES = sorted(Path(engram.__file__).parent.rglob("*.py"))
MODULES = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve", "subprocess", "yaml"}
BUILT_IN = {"eval", "exec", "compile", "__import__"}
CALLS = {"system", "popen", "mktemp", "extractall"}
NEEDED = {("torch", "load"): ("weights_only", True), ("np", "load"): ("allow_pickle", False)}


def _imported(node):
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    return {(node.module or "").partition(".")[0]} if isinstance(node, ast.ImportFrom) else set()


def _faults(tree):
    """Yield what would run a text or a file as a program, or unpack it anywhere."""
    for node in ast.walk(tree):
        yield from _imported(node) & MODULES
        if not isinstance(node, ast.Call):
            continue
        function, options = node.func, {word.arg: word.value for word in node.keywords}
        if isinstance(function, ast.Attribute):
            owner, name, bad = getattr(function.value, "id", ""), function.attr, CALLS
        else:
            owner, name, bad = "", getattr(function, "id", ""), BUILT_IN | CALLS
        if name in bad or "shell" in options:
            yield name
        word, wanted = NEEDED.get((owner, name), (None, None))
        if word and getattr(options.get(word), "value", None) is not wanted:
            yield f"{name} without {word}={wanted}"


def test_no_source_runs_what_it_reads():
    assert len(SOURCES) > 100
    found = {str(path): [*_faults(ast.parse(path.read_text()))] for path in SOURCES}
    assert {path: faults for path, faults in found.items() if faults} == {}


BAD = ["import pickle", "from pickle import loads", "eval('1')", "os.system('ls')", "torch.load(f)"]
BAD += ["torch.load(f, weights_only=False)", "np.load(f, allow_pickle=True)", "run(x, shell=True)"]
BAD += ["archive.extractall()", "import subprocess"]


@pytest.mark.parametrize("source", BAD)
def test_the_search_finds_what_it_looks_for(source):
    assert [*_faults(ast.parse(source))]


@pytest.fixture
def open_mask():
    """Let files be made that everybody may write, for as long as a test lasts."""
    mask = os.umask(0)
    yield
    os.umask(mask)


@pytest.mark.usefixtures("open_mask")
def test_a_memory_file_is_its_owner_s_alone(tmp_path):
    memory = Memory(Fifo(3))
    memory.add((torch.zeros(2, 3), torch.tensor([0, 1])))
    for _ in range(2):  # a new one, and one in the place of another
        memory.save(tmp_path / "memory")
        assert stat.S_IMODE((tmp_path / "memory").stat().st_mode) == 0o600
        (tmp_path / "memory").chmod(0o666)


@pytest.mark.usefixtures("open_mask")
def test_a_command_makes_nothing_that_everybody_may_write(tmp_path, monkeypatch):
    (tmp_path / "lines").write_text("")
    words = ["--merge", str(tmp_path / "lines"), "--store", str(tmp_path / "new" / "store.sqlite")]
    monkeypatch.setattr(sys, "argv", ["engram", "results", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    made = [tmp_path / "new", *(tmp_path / "new").iterdir()]
    assert [path.name for path in made] == ["new", "store.sqlite"]
    assert not any(path.stat().st_mode & stat.S_IWOTH for path in made)
