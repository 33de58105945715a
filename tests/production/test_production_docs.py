"""docs/production.md is true: its commands end as it says, and its tables are those of results/."""

import re
import tomllib
from pathlib import Path

import pytest

from engram.production import Gate
from examples.weeks import write_all
from tools.docs.production import PAGE, performed, tables

PYTHON = re.compile(r"(?ms)^```python\n(.*?)^```")


@pytest.mark.slow
def test_the_commands_of_the_page_end_as_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_all(tmp_path)
    page = PAGE.read_text("utf-8")
    codes = []
    for step, output, code in performed(page):
        if step.command == "echo $?":
            assert output == step.output
            codes.append(code)
        elif not step.command.startswith("engram update"):
            assert code == 0, step.command
        assert output, step.command
    assert len(codes) == 3
    assert len(list((tmp_path / "churn" / "versions").iterdir())) == 6
    (code,) = PYTHON.findall(page)
    exec(compile(code, str(PAGE), "exec"), {})
    assert Path("model.pt2").exists()


def test_the_gate_of_the_page_on_gates_is_one():
    (text,) = re.findall(
        r"(?ms)^```toml\n(.*?)^```", (PAGE.parent / "production/gate.md").read_text()
    )
    gate = Gate.from_json(tomllib.loads(text))
    assert gate.periods["2026-01-05 to 2026-01-11"].max_drop == 0.1
    assert gate.max_drop == Gate().max_drop
    assert gate.max_contradiction == Gate().max_contradiction
    assert gate.confidence == Gate().confidence


def test_the_tables_of_the_page_are_those_of_the_results():
    page = PAGE.read_text("utf-8")
    assert tables(page) == page, "stale, run `make docs`"
