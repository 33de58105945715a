"""Under Lightning's `ddp` strategy with manual optimisation, ranks take the same steps."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("lightning")

HERE = Path(__file__).parent


@pytest.mark.filterwarnings("ignore")  # Lightning's own
def test_two_ranks_of_lightnings_equal_one_with_the_whole_batch(tmp_path):
    """Lightning starts the second rank from the command that began the first: a script's."""
    from lightning_loop import train

    script = [sys.executable, str(HERE / "lightning_loop.py"), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    done = subprocess.run(
        script, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert all(map(torch.equal, first, second))
    whole, _ = train(devices=1)
    for ours, expected in zip(first, whole, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-12)
