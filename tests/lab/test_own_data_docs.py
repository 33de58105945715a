"""The page on one's own data is true: every command of it is accepted, where its files are."""

import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from own_worlds import write_class, write_csv, write_photos
from safetensors.torch import save_file

from engram.lab.methods import MethodSettings
from engram.lab.networks.plain import PlainMLP
from engram.lab.protocol import settings_help, specify

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "docs" / "your-own-data.md", ROOT / "README.md")
COMMAND = re.compile(r"(?m)^ *engram run ((?:folder|table):.+)$")
COMMANDS = sorted({found for page in PAGES for found in COMMAND.findall(page.read_text("utf-8"))})
SEASONS = {"1 spring": "bee rabbit rose", "2 summer": "sea shark", "3 winter": "rabbit wolf"}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Be where the page's files are."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    tasks = {task: dict.fromkeys(names.split(), 8) for task, names in SEASONS.items()}
    write_photos(tmp_path / "photos", tasks)
    for number in range(6):
        write_class(tmp_path / "flowers" / f"flower {number}", 6, number)
    header = ["order", "date", "price", "visits", "city", "bought"]
    days = [f"{year}-{month:02}-07" for year in (2022, 2023) for month in range(1, 13)]
    rows = [
        [row, day, row % 7, row % 5, "OBT"[row % 3], row % 2] for row, day in enumerate(days * 6)
    ]
    write_csv(tmp_path / "sales.csv", header, rows)
    rents = [[2020 + row % 3, row, 2 * row, "yn"[row % 2], row % 2] for row in range(60)]
    rents = [[*row[:3], {"y": "yes", "n": "no"}[row[3]], row[4]] for row in rents]
    write_csv(tmp_path / "rent.csv", ["year", "rent", "bill", "garden", "furnished"], rents)
    pixels = [[row, row % 3, row % 10, row % 3] for row in range(240)]
    write_csv(tmp_path / "digits.csv", ["a", "b", "digit", "lesson"], pixels)
    torch.save({}, tmp_path / "before.safetensors")  # which is read when a run begins


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("place")
def test_every_command_is_accepted(command):
    words = shlex.split(command)
    benchmark, methods, settings, passes = words[0], [], {}, 1
    for word, following in zip(words[1:], [*words[2:], ""], strict=True):
        if word == "--set":
            key, _, value = following.partition("=")
            settings[key] = value
        elif word == "--passes":
            passes = int(following)
        elif "=" not in word and not word.startswith("--") and not word.isdigit():
            methods.append(word)
    assert methods
    known = {
        method: {item.name for item in settings_help(benchmark, method)} & {*settings}
        for method in methods
    }
    assert set[str]().union(*known.values()) == {*settings}  # each goes to those that have it
    for method in methods:
        mine = {key: settings[key] for key in known[method]}
        assert specify(benchmark, method, overrides=mine, passes=passes).tasks > 1


RUNNABLE = [command for command in COMMANDS if "resnet18-imagenet" not in command]


@pytest.mark.slow
@pytest.mark.parametrize("command", RUNNABLE)
@pytest.mark.usefixtures("place")
def test_every_command_prints_a_table_of_its_methods(command, engram):
    inputs = 2 + len("OBT") + 1  # price, visits, and the cities: these and others
    torch.manual_seed(0)
    save_file(PlainMLP((inputs,), 2, width=8).state_dict(), "before.safetensors")
    small = [] if "size=" in command or "folder:" not in command else ["--set", "size=16"]
    found = engram("run", *shlex.split(command), *small, seeds=1)
    assert found.code == 0, found.err
    assert re.search(r"average (accuracy|R²|F1) %", found.out)
    for method in {"van", "er", "mega-ii", "a-gem"} & {*command.split()}:
        assert re.search(rf"(?m)^ {method} .* +\d", found.out), method


def test_the_page_names_every_setting():
    text = PAGES[0].read_text("utf-8")
    for benchmark in ("folder:any", "table:any.csv"):
        mine = {item.name for item in settings_help(benchmark, "van")}
        of_methods = {item.name for item in fields(MethodSettings)}  # which have pages of their own
        for name in mine - of_methods - {"precision"}:
            assert re.search(rf"`{name}`|{name}=", text), name
