"""docs/production.md is true: its commands end as it says, and its tables are those of results/."""

import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from types import ModuleType

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


class SkipError(Exception):
    """What Airflow calls AirflowSkipException."""


class FailError(Exception):
    """What Airflow calls AirflowFailException."""


@pytest.fixture
def ending(tmp_path, monkeypatch):
    """Return a function that puts an `engram` on the path whose updates end with a code."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")

    def put(code):
        file = tmp_path / "bin" / "engram"
        file.write_text(
            f'#!/bin/sh\necho "$@" >> {tmp_path}/said\n[ $1 = update ] && exit {code}\nexit 0\n'
        )
        file.chmod(0o755)

    return put


def block(kind):
    page = (PAGE.parent / "production" / "scheduling.md").read_text("utf-8")
    (found,) = re.findall(rf"(?ms)^```{kind}\n(.*?)^```", page)
    return found


@pytest.mark.parametrize(("code", "ends"), [(0, 0), (10, 10), (11, 0), (2, 2), (75, 75)])
def test_the_script_of_github_actions_ends_as_the_page_says(code, ends, ending, tmp_path):
    ending(code)
    script = textwrap.dedent(re.search(r"(?s)run: \|\n(.*?)\n- uses", block("yaml"))[1])
    env = os.environ | {"GITHUB_OUTPUT": str(tmp_path / "output")}
    assert subprocess.run(["bash", "-e", "-c", script], env=env).returncode == ends
    assert (tmp_path / "output").read_text() == f"verdict={code}\n"
    assert "history churn --report churn.html" in (tmp_path / "said").read_text()


@pytest.mark.parametrize(("code", "ends"), [(0, 0), (10, 1), (11, 0), (2, 1), (75, 1)])
def test_the_line_of_cron_fails_as_the_page_says(code, ends, ending, tmp_path):
    ending(code)
    page = (PAGE.parent / "production" / "scheduling.md").read_text("utf-8")
    line = re.search(r"(?m)^    15 3 \* \* 1  (.*)$", page)[1].replace("/srv", str(tmp_path))
    assert "%" not in line  # which cron takes for the end of a line
    assert subprocess.run(["/bin/sh", "-c", line]).returncode == ends


@pytest.mark.parametrize(
    ("code", "raises"),
    [(0, None), (10, FailError), (11, SkipError), (2, FailError), (75, RuntimeError)],
)
def test_the_task_of_airflow_retries_what_may_pass_alone(code, raises, ending, monkeypatch):
    """Airflow itself is no small thing to install: its names are stood in for."""
    ending(code)
    sdk, exceptions = ModuleType("airflow.sdk"), ModuleType("airflow.exceptions")
    exceptions.AirflowFailException, exceptions.AirflowSkipException = FailError, SkipError
    sdk.task = lambda **_: lambda function: function
    for name, module in {
        "airflow": ModuleType("airflow"),
        "airflow.sdk": sdk,
        "airflow.exceptions": exceptions,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    names = {}
    exec(compile(block("python"), "scheduling.md", "exec"), names)
    if raises is None:
        names["update_churn"](ds="2026-01-12")
    else:
        with pytest.raises(raises):
            names["update_churn"](ds="2026-01-12")
