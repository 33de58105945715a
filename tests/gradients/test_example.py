"""The example that users copy from runs, and shows what it says."""

import re
import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_loop.py"


def test_the_memory_keeps_what_fine_tuning_forgets(capsys):
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    _, plain, remembering = capsys.readouterr().out.splitlines()
    forgotten, learnt = map(float, re.findall(r"([\d.]+)%", plain))
    kept, also_learnt = map(float, re.findall(r"([\d.]+)%", remembering))
    assert forgotten < 80
    assert kept > 95
    assert min(learnt, also_learnt) > 95
