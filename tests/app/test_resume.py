"""What is stopped is saved and goes on, what dies is run again, what is stored is not kept."""

import functools
import json
import os
import signal
import sqlite3
import sys
import threading
import time
from pathlib import Path

import pytest
from fake_laboratory import unit_of

from engram.app.runs import Checkpoints, Store, Terminated, execute, plan_units
from engram.app.runs.interrupts import Interrupt
from engram.errors import EngramError
from listeners import Heard
from processes import started

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _listens():
    """Tests that were started in the background ignore Ctrl-C, and here it is to be heard."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def specs(laboratory, tmp_path):
    def make(method="van", **settings):
        texts = {"trace": tmp_path / "trace", **settings}
        texts = {key: str(value) for key, value in texts.items()}
        return laboratory.specify("permuted-mnist", method, tasks=2, overrides=texts)

    return make


@pytest.fixture
def work(store, laboratory):
    """Execute units of some specs; return who heard of it."""

    def work(*specs, seeds=2, **options):
        units = plan_units(specs, range(seeds), store, device="cpu", **options)
        heard = Heard()
        arguments = {"device": "cpu", "command": "engram run", "listener": heard}
        execute(units, store, laboratory.run, checkpoint_every=60.0, **arguments)
        return heard

    return work


def begun(trace):
    """Return who began so far: method, seeds, process, whether it went on from a checkpoint."""
    return [json.loads(line) for line in trace.read_text().splitlines()] if trace.exists() else []


def signal_when(condition, *signals):
    """Send this process signals once a condition holds, a while apart."""

    def send():
        deadline = time.monotonic() + 60
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.02)
        for each in signals:
            os.kill(os.getpid(), each)
            time.sleep(0.5)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@pytest.mark.slow
def test_sigterm_lets_the_workers_save_and_the_same_again_goes_on(work, specs, store, tmp_path):
    trace, spec = tmp_path / "trace", specs(sleep=30)
    workers = min(2, len(os.sched_getaffinity(0)))
    sender = signal_when(lambda: len(begun(trace)) == workers, signal.SIGTERM)
    with pytest.raises(Terminated):
        work(spec)
    sender.join()
    folder = tmp_path / "store-checkpoints"
    assert len(list(folder.iterdir())) == workers
    assert store.rows() == []
    # The second time nothing is slept through but by who had not begun.
    trace.unlink()
    heard = work(specs(sleep=30), seeds=workers)
    assert [went_on for *_, went_on in begun(trace)] == [True] * workers
    assert len(heard.stored) == len(store.rows()) == workers
    assert not folder.exists()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.slow
def test_a_second_signal_waits_for_nobody(work, specs, tmp_path):
    sender = signal_when(lambda: begun(tmp_path / "trace"), signal.SIGINT, signal.SIGINT)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        work(specs(sleep=60, fault="deaf"), seeds=1)
    assert time.monotonic() - started < 50
    sender.join()


@pytest.mark.slow
def test_a_worker_that_dies_is_run_once_more_from_where_it_was(work, specs, store, tmp_path):
    heard = work(specs(fault="die-once"), deterministic=True)
    assert [
        (seeds, went_on) for _, seeds, _, went_on in begun(tmp_path / "trace") if 0 in seeds
    ] == [
        ([0], False),
        ([0], True),
    ]
    assert sorted(heard.stored) == ["van, seed 0", "van, seed 1"]
    name, (line, reason) = heard.lines[0][0], [line for _, line in heard.lines]
    assert (name, line) == ("van, seed 0", "a line to the user")
    assert "SIGKILL" in reason
    assert reason.endswith("It is run again.")
    assert [row.outcome["facts"]["deterministic"] for row in store.rows()] == [1, 1]


def test_the_last_good_checkpoint_of_a_run_that_diverged_stays_until_the_next_command(
    work, specs, store, laboratory
):
    spec = specs(fault="diverge")
    path = Checkpoints(store, 5).path(unit_of(spec, (0,)), "cpu")
    laboratory.Checkpoint(path).save([spec], [0])
    work(spec, seeds=1)
    assert path.exists()
    work(spec, seeds=1)
    assert not path.exists()


def test_a_folder_that_cannot_be_is_told_before_anything_is_trained(work, specs, tmp_path):
    (tmp_path / "store-checkpoints").write_text("a file in its place")
    with pytest.raises(EngramError, match=r"No checkpoint can be saved in .*store-checkpoints"):
        work(specs())
    assert not (tmp_path / "trace").exists()


@pytest.fixture
def locked(tmp_path, monkeypatch):
    """A store that another connection is writing for good."""
    connect, hurried = sqlite3.connect, {"timeout": 0.1}
    monkeypatch.setattr(sqlite3, "connect", lambda path, **more: connect(path, **more | hurried))
    path = tmp_path / "locked.sqlite"
    with Store(path) as opened:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        yield opened
        other.close()


def test_a_store_that_cannot_be_written_leaves_the_checkpoint(
    locked, laboratory, specs, monkeypatch
):
    spec = specs()
    monkeypatch.setattr(Store, "count", lambda *_: 0)  # which the lock would refuse as well
    path = Checkpoints(locked, 5).path(unit_of(spec, (0,)), "cpu")
    laboratory.Checkpoint(path).save([spec], [0])
    arguments = {"device": "cpu", "command": "c", "listener": Heard()}
    with pytest.raises(EngramError, match=r"locked\.sqlite' cannot be used: database is locked"):
        execute([unit_of(spec, (0,))], locked, laboratory.run, checkpoint_every=5, **arguments)
    assert path.exists()


@pytest.mark.parametrize("every", [-1.0, float("nan"), float("inf")])
@pytest.mark.usefixtures("laboratory", "executor")
def test_an_interval_that_is_none_is_refused(every, engram, tmp_path):
    words = ["run", "permuted-mnist", "van", "--seeds", "1", "--tasks", "2", "--device", "cpu"]
    words += ["--store", tmp_path / "s.sqlite", "--checkpoint-every"]
    code, _, err = engram(*words, every)
    assert (code, "checkpoint-every must be 0 or more seconds" in err) == (2, True)
    assert engram(*words, 0)[0] == 0


@pytest.mark.usefixtures("laboratory", "executor")
@pytest.mark.parametrize("verb", ["run", "tune"])
def test_deterministic_is_part_of_the_command(engram, tmp_path, verb):
    path, options = tmp_path / "s.sqlite", {"seeds": 1, "tasks": 2, "device": "cpu"}
    engram(verb, "permuted-mnist", "mega-i", "--deterministic", store=path, **options)
    with Store(path) as store:
        assert all("--deterministic" in row.command for row in store.rows())
        assert len(store.rows()) == (1 if verb == "run" else 3)


@pytest.mark.usefixtures("laboratory")
@pytest.mark.parametrize(("raised", "code"), [(Terminated, 75), (KeyboardInterrupt, 130)])
def test_the_exit_code_says_what_happened(raised, code, engram, tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise raised

    monkeypatch.setattr("engram.app.runs.execute", stopped)
    options = {"seeds": 1, "device": "cpu", "store": tmp_path / "s.sqlite"}
    assert engram("run", "permuted-mnist", "van", **options).code == code


HEARD = [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]


def interrupted(*numbers, error=None):
    """Send this process signals where they are noted, and raise the error, if there is one."""
    with Interrupt() as interrupt:
        for number in numbers:
            os.kill(os.getpid(), number)
            assert interrupt.seen is numbers[0]
        if error is not None:
            raise error


def handlers():
    return [signal.getsignal(number) for number, _ in HEARD]


@pytest.mark.parametrize(("number", "raised"), HEARD)
def test_the_first_signal_is_noted_and_raised_in_the_end_unless_there_is_an_error(number, raised):
    before = handlers()
    with pytest.raises(raised) as caught:
        interrupted(number)
    assert caught.type is raised
    with pytest.raises(ZeroDivisionError):
        interrupted(number, error=ZeroDivisionError())
    interrupted()
    assert handlers() == before


def test_the_second_signal_raises_at_once():
    with pytest.raises(KeyboardInterrupt):
        interrupted(signal.SIGINT, signal.SIGTERM, error=ZeroDivisionError())


class _Signalling:
    """A function of the laboratory that sends this process a signal while a worker is started.

    What a worker is to do is pickled for it in the midst of that.
    """

    def __init__(self, run, number):
        self.run, self.number = run, number

    def __reduce__(self):
        os.kill(os.getpid(), self.number)
        return functools.partial, (self.run,)


@pytest.mark.parametrize(("number", "raised"), HEARD)
def test_a_signal_while_a_worker_starts_is_heard(store, laboratory, specs, number, raised):
    heard, run = Heard(), _Signalling(laboratory.run, number)
    units = plan_units([specs(sleep=1)], range(1), store, device="cpu")
    arguments = {"device": "cpu", "command": "engram run", "listener": heard}
    with pytest.raises(raised):
        execute(units, store, run, **arguments)
    assert store.rows() == heard.stored == []


def test_the_first_ctrl_c_is_noted_and_the_second_raises(work, specs, monkeypatch):
    sent = []

    def interrupt(*_):
        for time_ in ("first", "second"):
            sent.append(time_)
            os.kill(os.getpid(), signal.SIGINT)
        sent.append("neither has raised")

    monkeypatch.setattr(Heard, "advanced", interrupt)
    with pytest.raises(KeyboardInterrupt):
        work(specs(sleep=60, fault="deaf"), seeds=1)
    assert sent == ["first", "second"]


def test_signals_that_are_ignored_stay_ignored(work, specs, monkeypatch):
    monkeypatch.setattr(Heard, "advanced", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert work(specs(), seeds=1).stored == ["van, seed 0"]
    finally:
        signal.signal(signal.SIGTERM, before)


_COMMAND = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import engram.app.cli, fake_laboratory
engram.lab.protocol = sys.modules["engram.lab.protocol"] = fake_laboratory
engram.app.cli.main()
"""


@pytest.mark.parametrize(
    ("every", "sentence", "saved"),
    [("7", "goes on from where the rest was saved", 1), ("0", "does the rest", 0)],
)
def test_sigterm_ends_the_command_with_code_75_and_one_sentence(tmp_path, every, sentence, saved):
    path, trace = tmp_path / "store.sqlite", tmp_path / "trace"
    options = ["--seeds", "1", "--tasks", "2", "--device", "cpu", "--store", str(path)]
    settings = ["--set", "sleep=60", "--set", f"trace={trace}", "--checkpoint-every", every]
    words = ["run", "permuted-mnist", "van", *options, *settings]
    with started([sys.executable, "-c", _COMMAND, str(HERE), *words]) as process:
        while not begun(trace):
            assert process.poll() is None
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGTERM)  # as a batch system does: to the workers too
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (75, "")
    assert err == f"Stopped: what is finished is stored, and the same command {sentence}.\n"
    assert len(list(tmp_path.glob("store-checkpoints/*"))) == saved
