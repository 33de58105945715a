"""examples/distributed.py by torchrun: trained, resumed, and resumed by another number of ranks."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def launched(ranks, folder, kind, steps):
    """Return the losses of the last step and how many examples the first rank holds."""
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *("--nproc-per-node", str(ranks), str(ROOT / "examples" / "distributed.py")),
        *("--folder", str(folder), "--sharding", kind, "--steps", str(steps), "--every", "10"),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    line = re.search(r"losses (.+); (\d+) examples", done.stdout)
    assert line
    return [float(loss) for loss in line[1].split(", ")], int(line[2])


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_the_program_resumes_where_it_was_and_with_other_ranks(tmp_path, kind):
    whole = launched(2, tmp_path / "whole", kind, 20)
    launched(2, tmp_path / "parts", kind, 10)
    assert launched(2, tmp_path / "parts", kind, 20) == whole
    losses, held = launched(1, tmp_path / "parts", kind, 21)
    assert len(losses) == 2
    # Of each rank 16 examples a step were offered, to 200 places; then the 32 of one step more.
    assert whole[1] == 200
    assert held == 400
