"""Streams that break: whoever reads may go, a disk may be full, and nothing else is lost for it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from forked_commands import one_by_one

from engram.app.runs import Store
from processes import started

HERE = Path(__file__).parent
FULL = Path("/dev/full")
full = pytest.mark.skipif(not FULL.exists(), reason="there is no device that is always full")

_COMMAND = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import engram.app.cli, fake_laboratory
engram.lab.protocol = sys.modules["engram.lab.protocol"] = fake_laboratory
engram.app.cli.main()
"""


@pytest.fixture
def held(store, make_row):
    store.add([make_row(seed=seed, tasks=tasks) for seed in range(3) for tasks in range(1, 9)])
    return store.path


def words_of(*words):
    return [sys.executable, "-c", _COMMAND, str(HERE), *map(str, words)]


def gone():
    """Return the end of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.fixture
def each(tmp_path):
    """Give commands one after the other; return their exit codes and what is on stderr."""

    def give(*cases, **streams):
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, **streams}
        words = one_by_one(cases, tmp_path / "codes")
        done = subprocess.run(words, text=True, check=True, **streams)
        return json.loads((tmp_path / "codes").read_text()), done.stderr

    return give


def test_who_has_read_enough_is_told_nothing(held, each):
    results, writer = ["results", "--store", held], gone()
    cases = [results, [*results, "--csv"], [*results, "--json"], [*results, "--help"]]
    assert each(*cases, stdout=writer) == ([1] * 4, "")
    os.close(writer)


@full
def test_a_full_disk_is_told_in_one_sentence(held, each):
    results = ["results", "--store", held]
    with FULL.open("w") as stream:
        codes, told = each(results, [*results, "--csv"], ["--version"], ["--help"], stdout=stream)
    assert codes == [2] * 4
    assert len(told.splitlines()) == 4
    for line in told.splitlines():
        assert line.startswith("engram: ")
        assert line.endswith("No space left on device.")


@full
def test_the_exit_code_says_what_stderr_cannot(held, tmp_path, each):
    nothing, results = (["results", "--store", path] for path in (tmp_path / "nothing", held))
    with FULL.open("w") as stream:
        assert each(nothing, ["nonsense"], results, stderr=stream)[0] == [2, 2, 0]


def run_words(path, *settings):
    words = ["run", "permuted-mnist", "van", "--seeds", "2", "--tasks", "2", "--device", "cpu"]
    for setting in settings:
        words += ["--set", setting]
    return words_of(*words, "--store", path)


@pytest.mark.parametrize("heard", [True, False])
def test_a_run_goes_on_whether_anybody_hears_of_it_or_not(tmp_path, heard):
    """As when a connection is lost, or what was to keep a log has ended."""
    path, told = tmp_path / "store.sqlite", tmp_path / "told"
    error = subprocess.PIPE if heard else gone()
    with told.open("wb") as file:
        words = run_words(path, "fault=talk")
        done = subprocess.run(words, stdout=file, stderr=error, check=False)
    if not heard:
        os.close(error)
    assert done.returncode == 0
    assert "Plot: " in told.read_text("utf-8")
    assert "talks" not in told.read_text("utf-8")
    assert done.stderr is None or done.stderr.count(b"talks") == 2
    with Store(path, read_only=True) as store:
        assert len(store.rows()) == 2


def test_what_is_stopped_says_so_by_its_code_when_nobody_hears_of_it(tmp_path):
    trace, writer = tmp_path / "trace", gone()
    words = run_words(tmp_path / "store.sqlite", "sleep=60", f"trace={trace}")
    with started(words, stdout=subprocess.DEVNULL, stderr=writer) as process:
        os.close(writer)
        while not trace.exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 75


def test_a_folder_that_is_gone_is_told_before_libraries_stumble_over_it(tmp_path):
    place = tmp_path / "gone"
    code = f"import os; os.chdir({str(place)!r}); os.rmdir({str(place)!r})\n"
    code += "from engram.app.cli import main; main()"
    for words in (["results"], ["data"], ["run", "permuted-mnist", "van"]):
        place.mkdir()
        command = [sys.executable, "-c", code, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert done.stderr.startswith("engram: The folder that this is called in is gone")


def test_results_may_come_through_a_pipe(tmp_path, make_row):
    lines = "".join(f"{make_row(seed=seed).line}\n" for seed in range(3))
    target = tmp_path / "mine.sqlite"
    done = subprocess.run(
        words_of("results", "--merge", "/dev/stdin", "--store", target),
        input=lines,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "3 of 3 results were new" in done.stderr
