"""The example that users copy from runs, and shows what it says."""

import re
import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_loop.py"


def test_memory_and_penalty_keep_what_fine_tuning_forgets(capsys):
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    _, *lines = capsys.readouterr().out.splitlines()
    plain, penalised, remembering, both = (
        [float(share) for share in re.findall(r"([\d.]+)%", line)] for line in lines
    )
    assert plain[0] < 80
    assert penalised[0] > plain[0] + 10
    assert remembering[0] > 95
    assert both[0] > 95
    assert min(share for _, share in (plain, penalised, remembering, both)) > 95
