"""The commands: what they print, and their exit codes."""

import csv
import json
import signal
import subprocess
import sys
import time

import pytest
from trained_settings import SETTINGS
from typer.testing import CliRunner

from engram import production
from engram.app.cli.app import app
from examples.weeks import week, write
from processes import started


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_model_is_trained_asked_and_listed(tmp_path):
    data = write(tmp_path / "week1.csv", week(1, 200))
    settings = [word for pair in SETTINGS.items() for word in ("--set", "{}={}".format(*pair))]
    done = run("train", data, "--out", tmp_path / "churn", *settings)
    assert (done.exit_code, done.stdout.splitlines()[0]) == (
        0,
        f"Version 1 answers now: {tmp_path / 'churn'}",
    )
    out = tmp_path / "predictions.csv"
    done = run("predict", tmp_path / "churn", data, "--out", out)
    assert done.exit_code == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert len(rows) == 200
    assert set(rows[0]) == {
        "id", "prediction", "probability leave", "probability stay", "version"
    }  # fmt: skip
    assert rows[0]["version"] == "1"
    done = run("history", tmp_path / "churn", "--report", tmp_path / "churn.html")
    assert "1 *" in done.stdout
    assert (tmp_path / "churn.html").exists()
    done = run("history", tmp_path / "churn", "--json")
    assert json.loads(done.stdout)["versions"][0]["current"] is True


def test_the_exit_code_of_an_update_is_the_gates_verdict(churn, tmp_path):
    good = write(tmp_path / "good.csv", week(2, 1500))
    bad = write(tmp_path / "bad.csv", week(2, 1500, shuffled=True, seed=5))
    few = tmp_path / "few.toml"
    few.write_text("max_drop = 0.0001\nmax_negative_flips = 0.0001\n")
    assert run("update", churn, good, "--dry-run").exit_code == 0
    assert run("update", churn, bad).exit_code == 10
    done = run("update", churn, good, "--slice", "region", "--gate", few)
    assert (done.exit_code, "undecided; it does not answer" in done.stdout) == (11, True)
    done = run("update", churn, good)
    assert (done.exit_code, "accepted; it answers now" in done.stdout) == (0, True)
    assert run("update", churn, bad, "--force", "a test").exit_code == 0
    assert run("rollback", churn, "--to", 1).stdout == "Version 1 answers now.\n"
    done = run("erase", churn, "--where", "customer=7", "--report")
    assert "Not gone: the weights." in done.stdout


def test_a_lock_that_is_held_ends_with_75(churn, tmp_path):
    data = write(tmp_path / "week2.csv", week(2, 30))
    with production.Artefact(churn).lock():
        for words in (("update", churn, data), ("rollback", churn), ("erase", churn, "--id", "1")):
            assert run(*words).exit_code == 75


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["predict", "gone", "table:x.csv"], "is no artefact"),
        (["rollback", "gone"], "is no artefact"),
        (["erase", "gone", "--where", "customer"], "where must be COLUMN=VALUE"),
        (["train", "table:gone.csv", "--out", "x", "--set", "passes"], "--set takes KEY=VALUE"),
        (["update", "gone", "table:x.csv", "--schema", "grow"], "schema must be keep or extend"),
        (["update", "gone", "table:x.csv", "--force", " "], "force must say why"),
        (["update", "gone", "table:x.csv", "--dry-run", "--gate", "no.toml"], "cannot be read"),
        (["train", "x", "--out", "y", "--passes", "2", "--set", "passes=3"], "given twice"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(words, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    done = run(*words)
    assert done.exit_code == 2
    assert sentence in " ".join((done.stderr or capsys.readouterr().err).split())
    assert list(tmp_path.iterdir()) == []


def test_help_comes_without_torch():
    code = (
        "import sys; from engram.app.cli import main; sys.argv = ['engram', 'update', '--help']\n"
        "try: main()\nexcept SystemExit: print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.slow
def test_a_terminated_update_ends_with_75_and_goes_on(churn, tmp_path):
    data = write(tmp_path / "week2.csv", week(2, 1500))
    command = [sys.executable, "-m", "engram", "update", str(churn), data, "--passes", "400"]
    with started(command) as process:
        while not (churn / "work").exists():
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate()
    assert (process.returncode, said.strip()) == (
        75,
        "Stopped: the same command goes on from where it was saved.",
    )
    assert run("predict", churn, data).exit_code == 0
    assert run("update", churn, data, "--passes", "1").exit_code == 0


def test_settings_are_listed():
    done = run("train", "x", "--out", "y", "--help-settings")
    assert done.exit_code == 0
    assert "most_categories" in done.stdout


def test_an_answer_that_a_spreadsheet_would_run_is_written_as_text(tmp_path):
    columns = week(1, 200)
    answers = {"stay": "=HYPERLINK(1)", "leave": "-2"}
    columns["left"] = [answers[each] for each in columns["left"]]
    columns["customer"] = [f"@{number}" for number in range(200)]
    data = write(tmp_path / "week1.csv", columns)
    settings = ["--set", "target=left", "--set", "id=customer", "--set", "passes=1"]
    assert run("train", data, "--out", tmp_path / "churn", *settings).exit_code == 0
    done = run("predict", tmp_path / "churn", data)
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [row["id"] for row in rows] == [f"'@{number}" for number in range(200)]
    assert {row["prediction"] for row in rows} <= {"'=HYPERLINK(1)", "-2"}
