"""On a GPU: stacked and captured runs that are stopped anywhere end with the same bits.

``python tests/gpu/test_resume_on_gpu.py FILE`` notes the counts in FILE, as JSON.
"""

import os
import random
import sys
import tempfile
from pathlib import Path

import pytest
import torch

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("lab", "slow")]

from harness import note, stamp
from tiny_worlds import run_whole, same_bits, tiny_spec

from engram.lab.methods import names
from engram.lab.protocol import Checkpoint, run, specify

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read before the GPU is first used

BATCH_NORM = ["mega-ii", "prog-nn", "rwalk", "icarl", "recommended"]
SUBJECTS = [
    *(("permuted-mnist", method) for method in names()),
    *(("tiny-images", method) for method in BATCH_NORM),
]


class Killed(Exception):
    pass


class Dying(Checkpoint):
    """Saves at one step end, and dies at a later one."""

    def __init__(self, path, saved, killed):
        super().__init__(path, 1e9)
        self.ends, self.saved, self.killed = 0, saved, killed

    def due(self):
        self.ends += 1
        if self.ends == self.killed:
            raise Killed
        return self.ends == self.saved


def spec_of(benchmark, method):
    if benchmark == "tiny-images":
        return tiny_spec(method, benchmark, examples=46, learning_rate=0.01)
    few = {"draws": "2"} if method == "mer" else {"strength": "1e-4"} if method == "pi" else {}
    return specify(benchmark, method, tasks=3, examples=205, overrides=few)


def end_of(spec, seeds, **options):
    """Return all outcomes, and the weights and running averages that are left."""
    outcomes, (state,) = run_whole(spec, seeds, device="cuda", deterministic=True, **options)
    weights = {name: state[name] for name in ("parameters", "columns", "buffers") if name in state}
    return outcomes, weights


def ends_the_same(benchmark, method, folder):
    """Kill a run at a random step; return whether it goes on to the end of one that was not."""
    spec, seeds = spec_of(benchmark, method), [0, 1, 2]
    whole = end_of(spec, seeds)
    source = random.Random(f"{benchmark} {method}")
    ends = spec.tasks * -(-spec.examples // spec.settings["batch_size"])
    killed = source.randrange(2, ends)
    place = Dying(folder / "run.safetensors", source.randrange(1, killed), killed)
    with pytest.raises(Killed):
        end_of(spec, seeds, checkpoint=place)
    assert place.path.exists()
    return same_bits(end_of(spec, seeds, checkpoint=Checkpoint(place.path)), whole)


@pytest.mark.parametrize(("benchmark", "method"), SUBJECTS)
def test_a_run_that_is_killed_ends_with_the_same_bits(benchmark, method, tmp_path):
    assert ends_the_same(benchmark, method, tmp_path)


def test_a_diverging_run_of_a_captured_stack_is_named_and_takes_no_other_with_it():
    spec = tiny_spec("pi", "tiny-broken", examples=46)
    fine, bad = run(spec, [0, 2], device="cuda", deterministic=True)
    alike, _ = run(spec, [0, 1], device="cuda", deterministic=True)
    assert "The loss became non-finite in task 2 of 3, at step 4 of 12 " in bad.failure
    assert (fine.failure, fine.accuracy, fine.curve) == (None, alike.accuracy, alike.curve)


if __name__ == "__main__":
    same = 0
    for subject in SUBJECTS:
        with tempfile.TemporaryDirectory() as place:
            same += ends_the_same(*subject, Path(place))
        print(same, *subject)
    counts = {"kills": len(SUBJECTS), "identical": same, "device": torch.cuda.get_device_name()}
    note(Path(sys.argv[1]), "gpu", {**counts, **stamp()})
