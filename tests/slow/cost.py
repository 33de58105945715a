"""Measure what it costs to save a full run of MEGA-II on Permuted MNIST.

``python tests/slow/cost.py FILE`` notes it in FILE, as JSON, beside the harness's counts.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

import torch
from harness import note, stamp

from engram.lab.protocol import Checkpoint, specify
from engram.lab.protocol.records import Record
from engram.lab.protocol.trainer import RunState, build_method, build_stream

SAVES = 7


def late_state(spec, seeds):
    """Return a run that is in its last task: its memory is full, and nothing was learned."""
    stream = build_stream(spec, seeds, "cpu")
    method = build_method([spec] * len(stream.seeds), stream, "cpu")
    for task in range(spec.tasks):
        examples = method.stage_examples(stream.train(task))
        method.begin_task(task, examples.labels)
        if task < spec.tasks - 1:
            method.bank.end_task()
    record = Record(len(seeds), spec.tasks)
    record.curves = [[torch.zeros(len(seeds))] * 11 for _ in range(spec.tasks)]
    return RunState(spec.tasks, stream, method, record, None, time.perf_counter())


def measure(seeds):
    """Return the seconds and the bytes of one checkpoint of so many stacked seeds."""
    spec, taken = specify("permuted-mnist", "mega-ii"), []
    with tempfile.TemporaryDirectory() as folder:
        place = Checkpoint(Path(folder) / "run.safetensors", 0)
        state = late_state(spec, list(range(seeds)))
        for step in range(SAVES):
            started = time.perf_counter()
            state.save(place, spec.tasks - 1, step + 1)
            taken.append(time.perf_counter() - started)
        return {"seconds": round(statistics.median(taken), 4), "bytes": place.path.stat().st_size}


if __name__ == "__main__":
    torch.set_num_threads(1)
    every = Checkpoint("run.safetensors").every
    costs = {str(seeds): measure(seeds) for seeds in (1, 5)}
    for cost in costs.values():
        cost["percent"] = round(100 * cost["seconds"] / every, 3)
    note(Path(sys.argv[1]), "cost", {"every": every, "stacked": costs, **stamp()})
    print(costs)
