"""A reader follows `engram run` from the command to the changed weight: nine calls, few files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import engram

SOURCE = Path(engram.__file__).parent
MOST_FILES = 60

COMMAND = [
    "app/cli/process.py main",
    "app/cli/run.py run",
    "app/runs/executor.py execute",
    "app/runs/pool.py WorkerPool.dispatch",
]
WORKER = [
    "app/runs/worker.py serve",
    "lab/protocol/trainer.py run",
    "lab/methods/replay.py Replay.observe",
    "lab/engine/rows.py Rows.step",
    "lab/engine/rows.py descend_along",
]

# Runs before anything else in the command's process and in its workers': it notes every function of
# ours that is called, but for what an import calls, with the calls that led to it.
NOTED = """
import os, sys

source, seen = os.environ["WALK_SOURCE"] + os.sep, set()
noted = open(os.environ["WALK_NOTES"], "a", buffering=1)


def note(frame, event, _):
    called, way = frame.f_code, []
    if event != "call" or not called.co_filename.startswith(source) or called in seen:
        return
    while frame is not None:
        code, frame = frame.f_code, frame.f_back
        if code.co_filename.startswith(source) and not code.co_filename.endswith("__main__.py"):
            way.append(code.co_filename.removeprefix(source) + " " + code.co_qualname)
    if way and not any(each.endswith("<module>") for each in way):
        seen.add(called)
        noted.write("|".join(reversed(way)) + chr(10))


sys.setprofile(note)
"""


@pytest.fixture(scope="module")
def walks(tmp_path_factory):
    """Return, for every function of ours that a run calls, the calls that first led to it."""
    folder = tmp_path_factory.mktemp("walk")
    (folder / "sitecustomize.py").write_text(NOTED)
    paths = [str(folder), str(SOURCE.parent)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "WALK_SOURCE": str(SOURCE),
        "WALK_NOTES": str(folder / "notes"),
    }
    command = [
        "run",
        "permuted-mnist",
        "mega-ii",
        "--seeds",
        "1",
        "--tasks",
        "3",
        "--examples",
        "200",
        "--device",
        "cpu",
    ]
    subprocess.run(
        [sys.executable, "-m", "engram", *command],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
    )
    lines = (folder / "notes").read_text().splitlines()
    return [line.split("|") for line in lines]


def test_nine_calls_lead_from_the_command_to_the_update(walks):
    ends = {walk[-1]: walk for walk in walks}
    assert ends[COMMAND[-1]] == COMMAND
    assert ends[WORKER[-1]] == WORKER
    assert len(COMMAND + WORKER) == 9


def test_a_run_calls_functions_of_few_files(walks):
    files = {walk[-1].split(" ")[0] for walk in walks}
    assert len(files) <= MOST_FILES, sorted(files)
