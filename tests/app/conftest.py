import fake_laboratory
import pytest

from engram.app import runs
from engram.app.runs import Store, printable, record
from engram.lab import protocol

PARTS = ("Checkpoint", "check_network", "run", "settings_help", "specify", "stack_key", "stacking")
PARTS += ("tuned_settings", "tuning_specs")


@pytest.fixture
def laboratory(monkeypatch):
    """Let the application train in a millisecond: in its laboratory's place is a fake one."""
    for name in PARTS:
        monkeypatch.setattr(protocol, name, getattr(fake_laboratory, name))
    return fake_laboratory


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store.sqlite") as opened:
        yield opened


def execute_here(
    units, store, run, *, device, command, listener, checkpoint_every=0.0, cluster=runs.LOCAL
):
    """Train without other processes, which start slowly."""
    assert cluster.is_local
    runs.check_interval(checkpoint_every)
    failures = 0
    for unit in units:
        reason = None
        try:
            outcomes = run(
                unit.specs,
                unit.seeds,
                device=device,
                progress=lambda progress, unit=unit: listener.advanced(unit, progress),
            )
            made = zip(unit.specs, outcomes, strict=True)
            store.add([record(spec, outcome, command) for spec, outcome in made])
        except RuntimeError as error:
            reason = printable(str(error))
            failures += 1
        listener.ended(unit, reason)
    return failures


@pytest.fixture
def executor(monkeypatch):
    """Let commands train in this process."""
    monkeypatch.setattr(runs, "execute", execute_here)


@pytest.fixture
def make_row():
    """Make the row of a run of the fake laboratory."""

    def make(method="van", seed=0, *, tasks=3, examples=55_000, command="engram run", **settings):
        texts = {key: str(value) for key, value in settings.items()}
        spec = fake_laboratory.specify(
            "permuted-mnist", method, tasks=tasks, examples=examples, overrides=texts
        )
        return record(spec, fake_laboratory.run(spec, [seed])[0], command)

    return make


@pytest.fixture
def study(tmp_path):
    """Write a study of ours to a file, with the trace of what is trained beside it."""

    def write(text=fake_laboratory.STUDY):
        path = tmp_path / "mine.toml"
        path.write_text(text.replace("TRACE", str(tmp_path / "trace")), "utf-8")
        return str(path)

    return write


@pytest.fixture
def ask_study(tmp_path, engram, laboratory, executor, quick_figures):  # noqa: ARG001
    """Reproduce a study; return the exit code and what was printed."""

    def ask(target, **options):
        options = {"store": tmp_path / "results" / "store.sqlite", "device": "cpu", **options}
        return engram("reproduce", target, **options)

    return ask
