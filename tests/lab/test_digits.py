"""The digits of docs/your-own-data.md, made and learned as the page says."""

import json
import re
import shlex
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "your-own-data.md").read_text("utf-8")
MADE_BY = next(code for code in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "csv" in code)
COMMAND = next(line for line in PAGE.splitlines() if "er mega-ii --passes" in line)


@pytest.mark.slow
def test_900_digits_in_three_tasks_are_learned_by_several_passes(engram, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(MADE_BY, "the page", "exec"), {})
    assert len(Path("digits.csv").read_text().splitlines()) == 901
    words = shlex.split(COMMAND)[1:]
    found = engram(*words, seeds=2, json=True)
    results = json.loads(found.out)["results"]
    assert [each["method"] for each in results] == ["er", "mega-ii"]
    for each in results:
        assert each["average_accuracy"]["mean"] >= 85, each
