"""Texts of files reach the terminal as texts: nothing in them is carried out, or styled."""

import csv
import io
import json
import os
import pty
import re
import select
import sqlite3
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from forked_commands import one_by_one
from PIL import Image

from engram.app.cli import main
from engram.app.runs import address, record
from engram.app.terminal import visible
from engram.lab.protocol import Outcome, specify

HERE = Path(__file__).parent
NASTY = ["\x1b]0;owned\x07", "\x1b[2J", "\x9b31m", "a\rb", "a\x08b", "\x7f", "\u202eback", "\x85"]
NASTY += ["\u2066in\u2069", "\u2028", "[bold]b[/bold]", "[/]", "[link=x]:smile:"]
ALL = " ".join(NASTY)
OVERRIDES = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def acts(letter):
    """Whether a letter does something to a terminal, by Unicode's own tables."""
    return letter not in "\n\t" and (
        unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp")
        or unicodedata.bidirectional(letter) in OVERRIDES
        or unicodedata.name(letter, "").endswith(("-TO-RIGHT MARK", "-TO-LEFT MARK", "LETTER MARK"))
    )


def test_every_letter_that_does_something_is_shown_and_every_other_one_is_left():
    wrong = []
    for number in range(sys.maxunicode + 1):
        letter = chr(number)
        wanted = ascii(letter)[1:-1] if acts(letter) else letter
        if visible(f"a{letter}b") != f"a{wanted}b":
            wrong.append(letter)
    assert wrong == []


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Call the command line here; return its exit code and what it printed, in both streams."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))

    def call(*words, encoding="utf-8"):
        streams = [io.TextIOWrapper(io.BytesIO(), encoding) for _ in range(2)]
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["engram", *map(str, words)])
            patch.setattr(sys, "stdout", streams[0])
            patch.setattr(sys, "stderr", streams[1])
            with pytest.raises(SystemExit) as ended:
                main()
            assert [sys.stdout, sys.stderr] == streams
        for stream in streams:
            stream.flush()
        told = "".join(stream.buffer.getvalue().decode(encoding) for stream in streams)
        assert not [letter for letter in told if acts(letter)], ascii(told)
        assert "Traceback" not in told
        return ended.value.code or 0, told

    return call


def quoted(text):
    """Return a text as TOML may have it."""
    return '"' + "".join(f"\\U{ord(letter):08x}" for letter in text) + '"'


def study(title=ALL, benchmark="permuted-mnist", more=""):
    path = Path("study.toml")
    runs = f"benchmark = {quoted(benchmark)}\nseeds = 1\ntasks = 1\nexamples = 10"
    text = f'title = {quoted(title)}\n[[runs]]\nmethods = ["van"]\n{runs}\n{more}'
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_study_s_title_is_a_text_on_one_line(call, encoding):
    path = study(title=f"{ALL}\nengram: all is well")
    code, told = call("reproduce", path, "--dry-run", encoding=encoding)
    assert code == 0
    told = " ".join(told.split())
    for nasty in NASTY:
        assert ascii(nasty)[1:-1] in told
    assert r"\nengram: all is well" in told


@pytest.mark.parametrize("nasty", NASTY)
def test_a_study_that_is_refused(call, nasty):
    settings = f"[runs.settings]\n{quoted(nasty)} = {quoted(nasty)}"
    for path in (
        study(more=f"{quoted(nasty)} = 1"),
        study(more=settings),
        study(benchmark=f"table:{nasty}.csv"),
        study(benchmark=nasty),
    ):
        assert call("reproduce", path)[0] == 2


def rows(**changes):
    """Return two rows, of one that has failed as well; ``settings`` are added to its own."""
    spec = specify("permuted-mnist", "van", tasks=1, examples=10)
    for seed, failure in enumerate([None, "The weights became non-finite."]):
        outcome = Outcome(seed, [[0.5]], [[0.1]], 1.0, "cpu", {}, failure)
        row = json.loads(record(spec, outcome, "engram run").line)
        row["identity"]["settings"] |= changes.get("settings", {})
        row["identity"]["data"] = changes.get("data", "0123")
        row["address"] = address(row["identity"], seed)
        row["device"] = changes.get("device", "cpu")
        row["outcome"]["failure"] = failure and changes.get("failure", failure)
        row["outcome"]["facts"] |= changes.get("facts", {})
        yield row | changes.get("row", {})


def write_rows(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.mark.parametrize("nasty", NASTY)
def test_rows_of_others(call, nasty):
    """Whichever field of theirs holds it: they are refused, or shown as they are."""
    for number, changes in enumerate(
        [
            {"device": nasty},
            {"failure": nasty},
            {"data": nasty},
            {"settings": {nasty: nasty}},
            {"facts": {nasty: nasty, "guess_percent": nasty}},
            {"row": {nasty: nasty}},
            {"row": {"command": nasty, "versions": {nasty: nasty}}},
        ]
    ):
        lines, store = write_rows(Path(f"{number}"), rows(**changes)), f"{number}.sqlite"
        if call("results", "--merge", lines, "--store", store)[0] == 0:
            for words in (["--csv"], ["--json"], ["--device", nasty], ["--method", nasty]):
                call("results", "--store", store, *words)


def test_words_of_rich_are_no_markup_in_a_title_and_in_a_cell(call):
    named = {"settings": {"[bold]name[/]": "[red]value:smile:"}, "failure": "[bold]x :smile:"}
    one, other = (list(rows(**named)) for _ in range(2))
    for row in other:
        row["identity"]["settings"]["learning_rate"] = 0.5
        row["address"] = address(row["identity"], row["seed"])
    write_rows(Path("lines"), [*one, *other])
    code, told = call("results", "--merge", "lines", "--store", "s.sqlite")
    assert code == 0
    title = next(line for line in told.splitlines() if "1 tasks" in line)
    assert title.strip().endswith("[bold]name[/]=[red]value:smile:")
    write_rows(Path("lines"), one)
    code, told = call("results", "--merge", "lines", "--store", "other.sqlite")
    assert "[bold]name[/]=[red]value:smile:" in "".join(told.split())


@pytest.mark.parametrize("nasty", NASTY)
def test_a_store_that_somebody_edited(call, nasty):
    write_rows(Path("lines"), rows())
    call("results", "--merge", "lines", "--store", "s.sqlite")
    with sqlite3.connect("s.sqlite") as edited:
        edited.execute("DROP TRIGGER results_never_change")
        edited.execute("UPDATE results SET device = ?", [nasty])
    call("results", "--store", "s.sqlite")
    call("results", "--store", "s.sqlite", "--csv")


@pytest.mark.parametrize("nasty", NASTY)
def test_a_table_s_columns_classes_and_tasks(call, nasty):
    with Path("t.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["x", f"y{nasty}y", f"t{nasty}t", f"n{nasty}n"])
        writer.writerows([[n, f"{nasty}{n % 2}", f"{nasty}{n // 40}", nasty] for n in range(99)])
    for words in (
        ["--set", "target=nothing"],
        ["--set", f"target=y{nasty}y"],
        ["--set", f"target=y{nasty}y", "--set", f"time=t{nasty}t"],
        ["--set", f"target=n{nasty}n", "--set", f"task=t{nasty}t"],
        ["--set", f"ignore={nasty}"],
    ):
        call("run", "table:t.csv", "van", "--help-settings", *words)
    words = ["--set", f"target=y{nasty}y", "--set", f"task=t{nasty}t"]
    assert call("run", "table:t.csv", "van", "--help-settings", *words)[0] == 0


@pytest.mark.parametrize("nasty", NASTY)
def test_a_folder_s_classes_and_tasks(call, tmp_path, nasty):
    root = tmp_path / f"photos{nasty}".replace("/", "")
    nasty = nasty.replace("/", "")
    for task in "ab":
        for label in "cd":
            place = root / f"{task}{nasty}" / f"{label}{nasty}"
            place.mkdir(parents=True)
            for number in range(3):
                Image.new("RGB", (4, 4)).save(place / f"{number}{nasty}.png")
            (place / f"notes.{nasty}").write_text("")
    call("run", f"folder:{root}", "van", "--help-settings", "--tasks", "2")
    (root / f"a{nasty}" / f"c{nasty}" / f"0{nasty}.png").write_text("no image")
    assert call("run", f"folder:{root}", "van", "--help-settings", "--tasks", "2")[0] == 2
    assert call("run", f"folder:{root}{nasty}", "van", "--tasks", "2")[0] == 2


@pytest.mark.parametrize(
    ("nasty", "encoding"), [*((each, "utf-8") for each in NASTY), (ALL, "ascii"), (ALL, "latin-1")]
)
def test_words_and_places(call, tmp_path, nasty, encoding):
    """What is typed may have come from a file, too: names that a shell's * stands for, say."""
    folder = tmp_path / nasty.replace("/", "")
    folder.mkdir()
    lines = write_rows(folder / "lines", rows())
    assert call(f"--{nasty}", encoding=encoding)[0] == 2
    assert call(nasty, encoding=encoding)[0] == 2
    assert call("run", "permuted-mnist", "van", f"--{nasty}", encoding=encoding)[0] == 2
    assert call("run", "permuted-mnist", "van", "--seeds", nasty, encoding=encoding)[0] == 2
    assert call("data", "--data", folder, encoding=encoding)[0] == 0
    store = ["--store", folder / "s.sqlite"]
    call("results", "--merge", lines, *store, "--export", folder / "out", encoding=encoding)
    call("results", "--benchmark", "x", *store, encoding=encoding)


_COMMAND = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import engram.app.cli, fake_laboratory
engram.lab.protocol = sys.modules["engram.lab.protocol"] = fake_laboratory
engram.app.cli.main()
"""


def test_what_libraries_print_in_a_worker_and_the_place_of_the_plot(tmp_path):
    words = ["--seeds", "1", "--tasks", "2", "--device", "cpu", "--set", "fault=talk"]
    folder = tmp_path / "a\x1b[2J\nb"
    words += ["--store", str(folder / "store.sqlite")]
    command = [sys.executable, "-c", _COMMAND, str(HERE), "run", "permuted-mnist", "van", *words]
    done = subprocess.run(command, capture_output=True, check=True)
    told = (done.stdout + done.stderr).decode()
    assert not [letter for letter in told if acts(letter)], ascii(told)
    assert r"a library that talks \x1b[2J" in told
    assert r"a\x1b[2J\nb/permuted-mnist" in told.split("Plot: ")[1]


def test_on_a_terminal_there_are_rich_s_own_escapes_alone(tmp_path):
    study = tmp_path / "study.toml"
    study.write_text(
        f"title = {quoted(ALL)}\n[[runs]]\nbenchmark = 'permuted-mnist'\nmethods = ['van']\n"
        "seeds = 1\ntasks = 1\n[runs.settings]\nfault = 'raise'\nsleep = 0.3\n"
    )
    master, slave = pty.openpty()
    store = ["--store", str(tmp_path / "s.sqlite"), "--device", "cpu"]
    cases = [["reproduce", str(study), *store, *more] for more in ([], ["--dry-run"])]
    process = subprocess.Popen(
        one_by_one(cases, tmp_path / "codes"),
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "500"},
    )
    told = b""
    while process.poll() is None:
        told += os.read(master, 65536) if _waiting(master) else b""
    while _waiting(master):
        told += os.read(master, 65536)
    os.close(slave)
    os.close(master)
    text = told.decode()
    assert text.count(r"\x1b]0;owned\x07 \x1b[2J \x9b31m a\rb a\x08b \x7f \u202eback \x85") == 2
    assert text.count("[bold]b[/bold] [/] [link=x]:smile:") == 2
    assert "failed: RuntimeError" in text
    drawn = re.sub(r"\x1b\[\??[0-9;]*[mlhAKHG]|\r", "", text)  # styles, and where a bar begins
    assert not [letter for letter in drawn if acts(letter)], ascii(drawn)


def _waiting(descriptor):
    return bool(select.select([descriptor], [], [], 0.1)[0])
