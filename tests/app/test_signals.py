"""Ctrl-C and SIGTERM end a command in one line at any moment, with the code that says which."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engram.app.runs import Store
from processes import started

HERE = Path(__file__).parent
CODES = {signal.SIGINT: 130, signal.SIGTERM: 75}
PROC = Path("/proc/self/status")


def wait_until_heard(process, number):
    """Wait until a process has a handler of its own for a signal, as the system sees it."""
    status = Path(f"/proc/{process.pid}/status")
    while True:
        (caught,) = (line for line in status.read_text().splitlines() if line.startswith("SigCgt"))
        if int(caught.split()[1], 16) >> number - 1 & 1:
            return
        assert process.poll() is None
        time.sleep(0.002)


def stopped_after(seconds, number, words, folder):
    """Return the exit code and both outputs of a command that a signal is sent to so much later.

    It is sent after the command has begun to heed it: before, Python itself is starting.
    """
    with started([sys.executable, "-m", "engram", *words], cwd=folder) as process:
        wait_until_heard(process, signal.SIGTERM)  # Ctrl-C is Python's own to begin with
        time.sleep(seconds)
        process.send_signal(number)
        return process.communicate(timeout=60), process.returncode


RUN = ["run", "permuted-mnist", "mega-ii", "--seeds", "1", "--device", "cpu"]  # for minutes


@pytest.mark.skipif(not PROC.exists(), reason="nothing tells when a signal is heeded")
@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("seconds", [0, 0.05, 0.4, 1.0])
def test_a_signal_while_libraries_are_imported(tmp_path, seconds, number):
    (out, err), code = stopped_after(seconds, number, RUN, tmp_path)
    assert (code, out) == (CODES[number], "")
    assert err.startswith("Stopped")
    assert err.count("\n") == 1


# Both signals pass the same handlers: of the second one fewer moments will do, between the others.
MOMENTS = {
    signal.SIGINT: [0.1 * moment for moment in range(21)],
    signal.SIGTERM: [0.15 + 0.3 * moment for moment in range(7)],
}


@pytest.mark.slow
@pytest.mark.skipif(not PROC.exists(), reason="nothing tells when a signal is heeded")
@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("words", [RUN, ["reproduce", "k2", "--device", "cpu"]])
def test_a_signal_at_any_moment_of_the_first_two_seconds(tmp_path, words, number):
    begins = 1 if words == RUN else 2  # a study says how many runs are to do
    for moment in MOMENTS[number]:
        folder = tmp_path / f"{moment:.2f}"
        folder.mkdir()
        (out, err), code = stopped_after(moment, number, words, folder)
        assert (code, out) == (CODES[number], ""), (moment, err)
        assert err.splitlines()[-1].startswith("Stopped"), (moment, err)
        assert err.count("\n") <= begins, (moment, err)


_COMMAND = """
import os, signal, sys
folder, moment, number = sys.argv[1:4]
del sys.argv[1:4]
sys.path.insert(0, folder)
import engram.app.cli, fake_laboratory, matplotlib.figure
engram.lab.protocol = sys.modules["engram.lab.protocol"] = fake_laboratory
drawn = matplotlib.figure.Figure.savefig

def half_drawn(figure, path, **options):
    if path.suffix == moment:
        path.write_bytes(b"half of it")
        os.kill(os.getpid(), int(number))
    drawn(figure, path, **options)

matplotlib.figure.Figure.savefig = half_drawn
engram.app.cli.main()
"""


@pytest.mark.parametrize(("moment", "number"), [(".png", signal.SIGINT), (".svg", signal.SIGTERM)])
def test_a_signal_while_the_plot_is_drawn_leaves_the_results_and_no_half_of_a_plot(
    tmp_path, moment, number
):
    path = tmp_path / "store.sqlite"
    words = ["run", "permuted-mnist", "van", "--seeds", "1", "--tasks", "2", "--device", "cpu"]
    before = ["-c", _COMMAND, str(HERE), moment, str(int(number))]
    with started([sys.executable, *before, *words, "--store", str(path)]) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == CODES[number]
    stored, line = err.splitlines()
    assert stored.startswith("van, seed 0: stored")
    assert line.startswith("Stopped: what is finished is stored")
    assert "Plot" not in out
    with Store(path, read_only=True) as store:
        assert len(store.rows()) == 1
    others = [each for each in tmp_path.iterdir() if each != path]
    assert [each.suffix for each in others] == ([] if moment == ".png" else [".png"])
    assert not [each for each in others if each.name.startswith(".")]


_SWALLOWING = """
import os, sys
folder, number = sys.argv[1:3]
del sys.argv[1:3]
sys.path.insert(0, folder)
import engram.app.cli, fake_laboratory
engram.lab.protocol = sys.modules["engram.lab.protocol"] = fake_laboratory
specify = fake_laboratory.specify

class Swallowing:
    def __del__(self):  # Python goes on after whatever is raised here
        os.kill(os.getpid(), int(number))

def swallowing(*words, **options):
    Swallowing()
    return specify(*words, **options)

fake_laboratory.specify = swallowing
engram.app.cli.main()
"""


@pytest.mark.parametrize("number", CODES)
def test_a_signal_that_somebody_swallows_ends_the_command_before_anything_is_trained(
    tmp_path, number
):
    trace, path = tmp_path / "trace", tmp_path / "store.sqlite"
    words = ["run", "permuted-mnist", "van", "--seeds", "1", "--tasks", "2", "--device", "cpu"]
    words += ["--set", f"trace={trace}", "--store", str(path)]
    with started(
        [sys.executable, "-c", _SWALLOWING, str(HERE), str(int(number)), *words]
    ) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (CODES[number], "")
    assert err.splitlines()[-1].startswith("Stopped: what is finished is stored")
    assert "stored, 1 of 1" not in err
    assert not trace.exists()


def test_a_signal_that_is_ignored_stays_so(tmp_path):
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    code += "; from engram.app.cli import main; main()"
    with started([sys.executable, "-c", code, "results"], cwd=tmp_path) as process:
        time.sleep(0.5)
        process.terminate()
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err.count("\n")) == (2, 1)  # there is no store
    assert err.startswith("engram: There is no store")


def test_what_was_heeded_before_is_heeded_after():
    code = (
        "import signal, sys\n"
        "before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]\n"
        "from engram.app.cli import main; sys.argv = ['engram', '--version']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "after = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]\n"
        "sys.exit(before != after)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
