"""The same properties on cases that nobody has seen."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz_cases import SEED

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.skipif(SEED is not None, reason="they are other cases already")
def test_other_cases_hold_too():
    """A minute of them, from another number each time; the number makes them again."""
    seed = str(secrets.randbelow(2**32))
    words = ["-m", "pytest", "-m", "not slow", "-n", "0", *map(str, HERE.glob("test_fuzz_*.py"))]
    done = subprocess.run(
        [sys.executable, *words],
        cwd=HERE.parents[1],
        env={**os.environ, "ENGRAM_FUZZ_SEED": seed},
        capture_output=True,
        text=True,
    )
    told = f"`ENGRAM_FUZZ_SEED={seed} pytest tests/fuzz` makes these cases again"
    assert done.returncode == 0, f"{told}:\n{done.stdout[-8000:]}\n{done.stderr[-2000:]}"
