"""There are enough generated cases."""

import importlib
from pathlib import Path

from fuzz_cases import CASES


def test_ten_thousand_cases_are_generated():
    """Each test counts its own; the table is filled as the modules are imported."""
    modules = sorted(path.stem for path in Path(__file__).parent.glob("test_fuzz_*.py"))
    for module in modules:
        importlib.import_module(module)
    assert {name.partition(".")[0] for name in CASES} == {*modules} - {Path(__file__).stem}
    assert sum(CASES.values()) >= 10_000
