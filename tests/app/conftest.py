import fake_laboratory
import pytest

from engram.runs import Store, printable, record


@pytest.fixture
def laboratory():
    return fake_laboratory


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store.sqlite") as opened:
        yield opened


def execute_here(units, store, run, *, device, command, listener, checkpoints=None):  # noqa: ARG001
    """Train without other processes, which start slowly."""
    failures = 0
    for unit in units:
        reason = None
        try:
            outcomes = run(
                unit.spec,
                unit.seeds,
                device=device,
                progress=lambda progress, unit=unit: listener.advanced(unit, progress),
            )
            store.add([record(unit.spec, outcome, command) for outcome in outcomes])
        except RuntimeError as error:
            reason = printable(str(error))
            failures += 1
        listener.ended(unit, reason)
    return failures


@pytest.fixture
def executor():
    return execute_here


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
