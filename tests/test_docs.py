"""The documentation is true: the generated parts are fresh, commands work, links lead somewhere."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

import engram.lab.protocol
from engram.app.runs import read_lines
from engram.app.studies import published, taken
from engram.lab import methods
from tools.docs.blocks import MATCHED
from tools.docs.pages import write_pages
from tools.docs.results_page import GENERATED
from tools.docs.times import BUSY

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
ROOT_PAGES = sorted(page for page in ROOT.glob("*.md") if page.stem != "CHANGELOG")  # the past
SOURCE_PAGES = sorted((ROOT / "src").rglob("*.md"))
PAGES = [*sorted(DOCS.rglob("*.md")), *ROOT_PAGES, *SOURCE_PAGES]
RESULTS = sorted((ROOT / "results").glob("*.jsonl"))
WRITTEN = [page for page in PAGES if not page.read_text("utf-8").startswith(GENERATED)]
TOP = ("src", "tests", "tools", "docs", "results", "benchmarks", "examples")
ENGRAM = ROOT / "src" / "engram"
COMMAND = re.compile(r"(?m)(?:^    |`)(engram (?:run|tune) [^`\n]+)")
OPTIONS = {
    "--data",
    "--seeds",
    "--tasks",
    "--examples",
    "--device",
    "--record",
    "--record-every",
    "--tensorboard",
}


def name(path):
    return str(path.relative_to(ROOT))


def test_what_is_generated_is_fresh(tmp_path):
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(ROOT / "README.md", tmp_path)
    for folder in ("src", "results"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    changed = write_pages(tmp_path / "docs", RESULTS)
    stale = [str(path.relative_to(tmp_path)) for path in changed]
    assert not stale, f"{', '.join(stale)}: stale, run `make docs`"


def test_the_times_that_come_with_the_package_are_those_of_the_results():
    files = [file for file in RESULTS if file.stem not in BUSY]
    made = taken(row for file in files for row in read_lines(file))
    assert published() == made, "stale, run `make docs`"


def test_every_page_of_results_has_its_file():
    made = {page.stem for page in PAGES if page not in WRITTEN}
    assert made == {file.stem for file in RESULTS} - {MATCHED}  # which has docs/matched-budget.md


@pytest.mark.parametrize("method", methods.names())
def test_every_method_has_a_page_with_its_equation_code_settings_command_and_numbers(method):
    blocks = [re.findall(r"<!-- generated: (.+) -->", page.read_text("utf-8")) for page in WRITTEN]
    mine = [
        page
        for page, kinds in zip(WRITTEN, blocks, strict=True)
        if any(kind.startswith("results ") and method in kind.split() for kind in kinds)
    ]
    (page,) = mine
    text = page.read_text("utf-8")
    headings = re.findall(r"(?m)^## (.+)$", text)
    assert headings == [
        "The equation",
        "The code",
        "The settings",
        "The command",
        "Our number beside the paper's",
        "What is known to differ",
    ]
    assert "<!-- generated: code src/engram/" in text
    assert "<!-- generated: settings permuted-mnist " in text
    assert re.search(rf"(?m)^    engram run permuted-mnist {method} --seeds", text)
    assert f"({page.name})" in (DOCS / "methods" / "README.md").read_text("utf-8")


def commands():
    found = {command for page in WRITTEN for command in COMMAND.findall(page.read_text("utf-8"))}
    return sorted(found)


@pytest.mark.parametrize("command", commands())
def test_every_command_is_accepted(command):
    _, verb, benchmark, *words = shlex.split(command, comments=True)
    given, named = {}, []
    while words:
        word = words.pop(0)
        if word == "--set":
            key, _, value = words.pop(0).partition("=")
            given[key] = value
        elif word.startswith(
            "--network"
        ):  # of which docs/networks.md is tested by a test of its own
            words.pop(0)
        elif word in OPTIONS:
            assert words.pop(0).isalnum()
        elif word != "--help-settings":
            assert not word.startswith("-")
            named.append(word)
    assert named
    known = {
        method: {item.name for item in engram.lab.protocol.settings_help(benchmark, method)}
        for method in named
    }
    assert given.keys() <= set[str]().union(*known.values())  # each goes to those that know it
    for method in named:
        mine = {key: value for key, value in given.items() if key in known[method]}
        engram.lab.protocol.specify(benchmark, method, overrides=mine)
        if verb == "tune":
            assert engram.lab.protocol.tuning_specs(benchmark, method)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target


def paths_in(text):
    """Return what reads like a file or a folder of this checkout: ``lab/engine/rows.py``, ``app/``.

    Those of the package may be told without ``src/engram/``.
    """
    inside = sorted(path.name for path in ENGRAM.iterdir() if path.is_dir())
    first = "|".join([*TOP, *inside])
    return re.findall(rf"(?<![\w./<~-])(?:{first})/(?:[\w.-]+/)*(?:[\w-]+\.\w+)?", text)


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_every_path_that_is_named_exists(page):
    text = re.sub(r"\]\([^)]*\)", "]", page.read_text("utf-8"))  # links have their own test
    for path in paths_in(text):
        places = [page.parent / path, ROOT / path, ENGRAM / path]
        assert any(place.exists() for place in places), path


def test_paths_are_found_where_a_page_names_them():
    text = "`src/engram/rules/mega2.py`, lab/engine/rows.py (app/) and docs/methods; not a/lab/x.py"
    assert paths_in(text) == ["src/engram/rules/mega2.py", "lab/engine/rows.py", "app/", "docs/"]


SOURCES = {path: path.read_text("utf-8") for path in sorted(ENGRAM.rglob("*.py"))}
INSIDE = [DOCS / "architecture.md", *SOURCE_PAGES]  # the pages on how the package works


@pytest.mark.parametrize("page", INSIDE, ids=name)
def test_every_file_class_and_method_that_is_named_exists(page):
    text = page.read_text("utf-8")
    files = {path.name for path in SOURCES}
    assert set(re.findall(r"`(\w+\.py)`", text)) <= files
    named = re.findall(r"\b(?!README)([A-Z]\w+)\.(\w+)\b", text)
    assert named
    for kind, member in named:
        homes = [source for source in SOURCES.values() if re.search(rf"\bclass {kind}\b", source)]
        assert any(re.search(rf"\b(def {member}\(|{member}:)", each) for each in homes), member
