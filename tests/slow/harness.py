"""Kill runs by SIGKILL, let them go on, and compare the end with one that was left alone.

``python tests/slow/harness.py FILE [KILLS]`` notes the counts in FILE, as JSON.
"""

import hashlib
import json
import os
import platform
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "lab")]

import faults
import torch
from tiny_worlds import run_whole, tiny_spec

from engram.app.runs import Checkpoints, Store, Unit
from engram.app.runs.executor import keep
from engram.lab.methods import names
from engram.lab.protocol import Outcome
from engram.lab.protocol.checkpoint import encode

WITH_BATCH_NORM = ["er", "gem", "icarl", "mega-ii", "prog-nn", "rwalk"]
WITH_TWO_RATES = ["mega-ii", "pi"]
SUBJECTS = [
    *(("tiny", method) for method in names()),
    *(("tiny-images", method) for method in WITH_BATCH_NORM),
    *(("two-rates", method) for method in WITH_TWO_RATES),
]
KINDS = {"tiny": "", "tiny-images": ", batch norm", "two-rates": ", two rates"}


def specs_of(subject):
    """Return the specs of a stack of two runs."""
    kind, method = subject
    if kind == "two-rates":
        return [tiny_spec(method, learning_rate=rate) for rate in (0.1, 0.2)]
    if kind == "tiny":
        return [tiny_spec(method)] * 2
    return [tiny_spec(method, kind, tasks=2, examples=10, learning_rate=0.01)] * 2


def train(subject, folder, every):
    """Do what a command does: go on from a checkpoint, store what comes of it, remove the first.

    None for ``every``: without checkpoints.
    """
    specs, seeds = specs_of(subject), (0, 1)
    with Store(folder / "store.sqlite") as store:
        checkpoints = Checkpoints(store, every)
        checkpoints.remove_stale()
        unit = Unit(tuple(zip(specs, seeds, strict=True)))
        if store.rows():
            return
        path = checkpoints.path(unit, "cpu")
        checkpoint = None if every is None else checkpoints.begin(path)
        outcomes, state = run_whole(specs, seeds, checkpoint=checkpoint)
        for outcome in outcomes:
            outcome["facts"]["state"] = digest(state)
        made = [Outcome(seconds=1.0, **outcome) for outcome in outcomes]
        assert keep(unit, made, store, "harness") is None
        checkpoints.remove(path)


def digest(state):
    """Return the sha256 of everything that a method is left with."""
    tensors = {}
    document = json.dumps(encode(state, "state", tensors), sort_keys=True)
    whole = hashlib.sha256(document.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        whole.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        whole.update(
            tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
        )
    return whole.hexdigest()


def in_a_process(work):
    """Return the id of a new process that does the work."""
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def result(subject, folder, every=0.02):
    """Let a process of its own go on to the end; return what it has stored, and what is left."""
    _, status = os.waitpid(in_a_process(lambda: train(subject, folder, every)), 0)
    assert status == 0, f"{subject} ended with {status}"
    with Store(folder / "store.sqlite", read_only=True) as store:
        rows = store.rows()
    left = sorted(path.name for path in folder.iterdir())
    return [(row.address, row.seed, row.outcome) for row in rows], left


def kill(subject, place, number, folder, seconds, source):
    """Begin a run and kill it; return whether it was killed before its end."""
    if place != "a random moment":
        every = 0.0 if place in faults.CHECKPOINT_CALLS else 0.02

        def work():
            faults.install(place, number, source)
            train(subject, folder, every)

        _, status = os.waitpid(in_a_process(work), 0)
        assert status in (0, signal.SIGKILL), f"{subject}, {place} ended with {status}"
        return status == signal.SIGKILL
    child = in_a_process(lambda: train(subject, folder, 0.02))
    time.sleep(source.uniform(0, seconds))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def undisturbed(subjects):
    """Return what every subject ends with if nothing is saved or stopped, and its seconds."""
    expected = {}
    for subject in subjects:
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            expected[subject] = (
                *result(subject, Path(folder), None),
                time.perf_counter() - started,
            )
    return expected


def kills(count, seed=0):
    """Kill so many runs; return the counts."""
    torch.set_num_threads(1)
    plan = faults.plan(count, SUBJECTS, seed)
    expected = undisturbed(dict.fromkeys(subject for subject, _, _ in plan))
    source, outcomes = random.Random(seed), []
    for subject, place, number in plan:
        rows, left, seconds = expected[subject]
        while True:
            folder = Path(tempfile.mkdtemp())
            if kill(subject, place, number, folder, seconds, source):
                break
            shutil.rmtree(folder)  # it was through before: sooner
            number, seconds = number // 2, seconds / 2
        found, remains = result(subject, folder)
        same = found == rows and remains == left
        outcomes.append((subject, place, same))
        print(f"{len(outcomes):4} {'same' if same else 'OTHER'}: {' '.join(subject)}, {place}")
        if not same:
            print(f"     results are {'those' if found == rows else 'others'}; left: {remains}")
        shutil.rmtree(folder)
    return counted(outcomes)


def counted(outcomes):
    by_method, by_place = Counter(), Counter()
    for (kind, method), place, _ in outcomes:
        by_method[f"{method}{KINDS[kind]}"] += 1
        by_place[place] += 1
    return {
        "kills": len(outcomes),
        "identical": sum(same for _, _, same in outcomes),
        "methods": dict(sorted(by_method.items())),
        "places": dict(sorted(by_place.items())),
        **stamp(),
    }


def stamp():
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
    }


def note(path, name, counts):
    """Put counts beside the others in a file."""
    held = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**held, name: counts}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    started = time.perf_counter()
    counts = kills(int(sys.argv[2]) if len(sys.argv) > 2 else 100)
    note(Path(sys.argv[1]), "cpu", counts)
    print(f"{counts['identical']} of {counts['kills']} in {time.perf_counter() - started:.0f} s")
    sys.exit(counts["identical"] != counts["kills"])
