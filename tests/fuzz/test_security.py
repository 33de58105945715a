"""What SECURITY.md promises of the sources and of the files that are made."""

import ast
import os
import re
import stat
import sys
from pathlib import Path

import pytest
import torch

import engram
from engram.app.cli import main
from engram.memory import Fifo, Memory

SOURCES = sorted(Path(engram.__file__).parent.rglob("*.py"))
MODULES = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "pty", "runpy", "shelve"}
MODULES |= {"subprocess", "yaml"}
"""What no source imports."""
NEEDED = {f"app/runs/{name}.py": {"pickle"} for name in ("agent", "on_slurm", "remote")}
NEEDED["app/runs/provenance.py"] = {"subprocess"}
"""But for messages between a driver and the workers that it has started (docs/cluster.md), and for
git, which says the commit of a checkout."""
RUNNING = re.compile(
    r"(builtins\.)?(eval|exec|compile|__import__)|os\.(exec|spawn|posix_spawn|startfile)\w*"
    r"|(.*\.)?(system|popen|mktemp|extractall)"
)
"""What would run a text or a file as a program, or unpack it anywhere."""
LOADS = {"torch.load": ("weights_only", True), "numpy.load": ("allow_pickle", False)}
"""What unpickles, unless it is told not to."""
STARTING = {"PIL.Image.open": "formats"}
"""What may start a program at a file of another kind, unless it is told which kinds to read."""


def _imported(node):
    """Return the names that an import binds, with what each stands for."""
    if isinstance(node, ast.Import):
        whole = {each.asname: each.name for each in node.names if each.asname}
        roots = [each.name.partition(".")[0] for each in node.names if not each.asname]
        return whole | {root: root for root in roots}
    if isinstance(node, ast.ImportFrom):
        return {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    return {}


def _called(node, names):
    """Return the whole name of a function, by the module that it is in."""
    if isinstance(node, ast.Attribute):
        return f"{_called(node.value, names)}.{node.attr}"
    return names.get(node.id, node.id) if isinstance(node, ast.Name) else ""


def _faults(source):
    """Yield what may run what was read; a function is found by any name, called or handed on."""
    nodes = [*ast.walk(ast.parse(source))]
    bound = [pair for node in nodes for pair in _imported(node).items()]
    yield from {name.partition(".")[0] for _, name in bound} & MODULES
    listed = {*LOADS, *STARTING}
    yield from {name for _, name in bound if name in listed or RUNNING.fullmatch(name)}
    options = {}
    for node in nodes:
        if isinstance(node, ast.Call):
            options[node.func] = {each.arg: each.value for each in node.keywords}
            if "shell" in options[node.func]:
                yield "shell"
    for node in nodes:
        if isinstance(node, ast.Name | ast.Attribute):
            name = _called(node, dict(bound))
            word, wanted = LOADS.get(name, (None, None))
            given = getattr(options.get(node, {}).get(word), "value", None)
            if RUNNING.fullmatch(name) or (word and given is not wanted):
                yield name
            if name in STARTING and STARTING[name] not in options.get(node, {}):
                yield name


def test_no_source_runs_what_it_reads():
    assert len(SOURCES) > 100
    found = {}
    for path in SOURCES:
        name = path.relative_to(Path(engram.__file__).parent).as_posix()
        found[name] = {*_faults(path.read_text("utf-8"))} - NEEDED.get(name, set())
    assert {path: faults for path, faults in found.items() if faults} == {}


BAD = ["import pickle", "from pickle import loads", "eval('1')", "import os; os.system('ls')"]
BAD += ["import torch; torch.load(f)", "import torch as t; t.load(f, weights_only=False)"]
BAD += [
    "from torch import load",
    "from torch import load as read",
    "import torch; read = torch.load",
]
BAD += ["import numpy; numpy.load(f)", "import numpy as np; np.load(f, allow_pickle=True)"]
BAD += ["from numpy import load", "import numpy as np; map(np.load, files)"]
BAD += ["import os; os.execv(f, words)", "from os import execvp", "import os; os.spawnl(0, f)"]
BAD += ["import os; os.posix_spawn(f, words, {})", "from os import spawnlp as start"]
BAD += [
    "import runpy",
    "from runpy import run_path",
    "import subprocess as s",
    "run(x, shell=True)",
]
BAD += [
    "from subprocess import run",
    "archive.extractall()",
    "import builtins; builtins.exec(text)",
]
BAD += ["from PIL import Image; Image.open(f)", "from PIL.Image import open"]
GOOD = ["from PIL import Image; Image.open(f, formats=KINDS)"]
GOOD += ["import torch; torch.load(f, weights_only=True); model.eval()", "import re; re.compile(x)"]
GOOD += [
    "import numpy as np; np.load(f, allow_pickle=False)",
    "json.load(f)",
    "import os; os.open(f)",
]


@pytest.mark.parametrize(("sources", "bad"), [(BAD, True), (GOOD, False)])
def test_the_search_finds_what_it_looks_for(sources, bad):
    assert [source for source in sources if bool([*_faults(source)]) != bad] == []


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
