"""Fill docs/production.md: the output of its commands, and the tables of two studies.

``python -m tools.docs.production`` runs the commands of the page in a folder of its own and writes
what they print below them; the tables come from results/production-gate.json and
results/production-clinc150.json.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "production.md"
RESULTS = ROOT / "results"
_CONSOLE = re.compile(r"(?ms)^```console\n(.*?)^```\n")
_BLOCK = re.compile(r"(?ms)^<!-- production: (gate|clinc150) -->\n.*?^<!-- production: end -->\n")
_WIDTH = 160  # columns of a printed table


class Step(NamedTuple):
    """A command of the page, and what stands below it."""

    command: str
    output: str


def steps(block: str) -> list[Step]:
    """Return the commands of a console block."""
    parts = re.split(r"(?m)^\$ ", block)[1:]
    return [Step(*part.partition("\n")[::2]) for part in parts]


def story(page: str) -> list[Step]:
    """Return all commands of a page, in order."""
    return [step for block in _CONSOLE.findall(page) for step in steps(block)]


def perform(command: str, before: int, given: str) -> tuple[str, int]:
    """Do a command in the current folder; return what it prints and its exit code.

    ``before`` is the exit code of the last one, ``given`` what the page has below the command.
    """
    words = shlex.split(command)
    if words == ["echo", "$?"]:
        return f"{before}\n", 0
    if words[0] == "cat":  # a file that the page shows is the file that it uses
        Path(words[1]).write_text(given, "utf-8")
        return given, 0
    if words[:2] == ["head", "-n"]:
        lines = Path(words[3]).read_text("utf-8").splitlines(keepends=True)
        return "".join(lines[: int(words[2])]), 0
    assert words[0] == "engram", command
    from engram.app.cli.app import app

    printed, code = io.StringIO(), 0
    try:
        with contextlib.redirect_stdout(printed):
            app(words[1:], prog_name="engram")
    except SystemExit as ended:
        code = int(ended.code or 0)
    lines = [line.rstrip() for line in printed.getvalue().splitlines()]
    return "".join(f"{line}\n" for line in lines if line), code


def performed(page: str) -> Iterator[tuple[Step, str, int]]:
    """Yield every command of a page with what it prints now, and its exit code."""
    code = 0
    for step in story(page):
        output, code = perform(step.command, code, step.output)
        yield step, output, code


def fill(page: str, outputs: Sequence[str]) -> str:
    """Return a page with these outputs below its commands."""
    left = iter(outputs)

    def block(found: re.Match[str]) -> str:
        text = "".join(f"$ {step.command}\n{next(left)}" for step in steps(found[1]))
        return f"```console\n{text}```\n"

    return _CONSOLE.sub(block, page)


def gate_table(results: Mapping[str, Any]) -> str:
    """Say how often the gate was right."""
    updates = results["updates"]
    costly = results["max_drop"]
    planted = [each for each in updates if each["planted"]]
    harmless = [each for each in updates if not each["planted"]]
    bad = [each for each in planted if each["cost"] >= costly]
    lines = [
        f"{len(planted)} updates with something planted in them and {len(harmless)} harmless ones, "
        f"of small models ({results['date']}, torch {results['torch']}), by the default gate. "
        f"The exam of the past has {results['exam']} examples, {results['exam_of_a_region']} "
        "of them "
        f"of each of four regions and {results['exam_of_a_class']} of each of three classes; "
        f"an update has {results['new_examples']:,} examples. What an update truly costs is "
        "measured on 20,000 fresh ones: the largest fall of the accuracy in any region or class. "
        "[The script](../benchmarks/gate_study.py).",
        "",
        "| updates | how many | accepted | undecided | rejected |",
        "|---|---:|---:|---:|---:|",
    ]
    kinds = dict.fromkeys(each["kind"] for each in updates)
    groups = [
        *((name, [each for each in updates if each["kind"] == name]) for name in kinds),
        (f"**planted, costing a slice {100 * costly:g} points or more**", bad),
        ("planted, costing less", [each for each in planted if each["cost"] < costly]),
        ("**harmless**", harmless),
    ]
    for name, some in groups:
        counts = [
            sum(each["verdict"] == verdict for each in some)
            for verdict in ("accepted", "undecided", "rejected")
        ]
        lines.append(f"| {name} | {len(some)} | " + " | ".join(map(str, counts)) + " |")
    lines += [
        "",
        f"Of the {len(bad)} regressions that cost a slice {100 * costly:g} points or more "
        f"{_percent(_share(bad, 'accepted', other=True))} were not accepted. Of the harmless "
        f"updates {_percent(_share(harmless, 'accepted'))} were accepted and "
        f"{_percent(_share(harmless, 'rejected'))} rejected.",
    ]
    return "\n".join(lines)


def _share(updates: Sequence[Mapping[str, Any]], verdict: str, other: bool = False) -> float:
    found = [bool(each["verdict"] == verdict) != other for each in updates]
    return sum(found) / len(found)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def clinc_table(results: Mapping[str, Any]) -> str:
    """Say what the methods keep of ten domains."""
    sentences = {
        "mega-ii": "MEGA-II",
        "er": "experience replay",
        "a-gem": "A-GEM",
        "van": "plain training (no memory)",
        "all at once": "all domains at once",
    }
    lines = [
        "Ten updates of a text model, a domain of fifteen intents each: the encoder "
        f"`{results['encoder']}` and a linear head, {results['per_intent']} training sentences of "
        f"each intent, {results['passes']} pass, a memory of {results['memory']} sentences "
        f"({results['date']}, on {results.get('gpu') or 'a CPU'}). Accuracy on all test sentences "
        "at the end, any of 150 intents, the mean of the ten domains. "
        "[The script](../benchmarks/clinc150.py).",
        "",
        "| method | accuracy % | first domain % | last domain % |",
        "|---|---:|---:|---:|",
    ]
    for method, found in sorted(results["methods"].items(), key=lambda item: item[1]["accuracy"]):
        domains = list(found["by_domain"].values())
        lines.append(
            f"| {sentences[method]} | {100 * found['accuracy']:.1f} | "
            + (f"{100 * domains[0]:.1f} | {100 * domains[-1]:.1f} |" if domains[1:] else "– | – |")
        )
    return "\n".join(lines)


def tables(page: str, folder: Path = RESULTS) -> str:
    """Return a page with the tables of today's results."""
    makers = {"gate": gate_table, "clinc150": clinc_table}

    def block(found: re.Match[str]) -> str:
        name = found[1]
        results = json.loads((folder / f"production-{name}.json").read_text("utf-8"))
        return f"<!-- production: {name} -->\n{makers[name](results)}\n<!-- production: end -->\n"

    return _BLOCK.sub(block, page)


def main() -> None:
    """Write the page anew."""
    write_all = import_module("examples.weeks").write_all
    page = PAGE.read_text("utf-8")
    if "--tables" not in sys.argv:
        before = Path.cwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                write_all(Path(folder))
                found = list(performed(page))
            finally:
                os.chdir(before)
        for step, _, code in found:
            print(code, step.command)
        page = fill(page, [output for _, output, _ in found])
    PAGE.write_text(tables(page), "utf-8")


if __name__ == "__main__":
    main()
