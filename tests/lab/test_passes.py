"""Several passes over one's own data, and early stopping on a held out part of it."""

from collections import Counter

import numpy as np
import pytest
from dying_checkpoints import Dying, Killed, checkpoint
from tiny_worlds import run_whole, same_bits

from engram.errors import EngramError
from engram.lab.benchmarks import from_tensors
from engram.lab.methods import method_entry, names
from engram.lab.protocol import build_stream, run, specify

SEVERAL = [name for name in names() if not method_entry(name).one_pass]
FAST = {"batch_size": "8", "learning_rate": "0.1"}
SMALL = {"memory_per_class": "4", "reference_batch": "6", "memory_size": "16", "draws": "2"}


def noisy(tasks=2, count=40, seed=0, noise=0.25):
    """Return tasks of two classes, of which some labels are wrong: too many passes learn those."""
    source = np.random.default_rng(seed)
    made = []
    for task in range(tasks):
        labels = np.arange(count) % 2
        centres = np.where(labels, 1.0, -1.0)[:, None] * np.array([np.cos(task), np.sin(task)])
        inputs = np.hstack([centres, np.zeros((count, 4))]) + source.normal(0, 1, (count, 6))
        wrong = source.random(count) < noise
        made.append((inputs.astype(np.float32), np.where(wrong, 1 - labels, labels)))
    return made


@pytest.fixture(scope="module", autouse=True)
def _known():
    from_tensors(noisy(), name="noisy")
    from_tensors(noisy(1, count=200), name="noisy-one")


def noisy_spec(method="er", benchmark="noisy", passes=3, **overrides):
    known = vars(method_entry(method).settings())
    given = {name: text for name, text in {**FAST, **SMALL}.items() if name in known}
    texts = {name: str(value) for name, value in overrides.items()}
    return specify(benchmark, method, passes=passes, overrides={**given, **texts})


def test_one_pass_adds_nothing_to_an_address_and_more_are_in_it():
    one, three = noisy_spec(passes=1).identity(), noisy_spec(passes=3).identity()
    assert three == {**one, "passes": 3}
    assert not {"patience", "held_out", "passes"} & {*one, *one["settings"]}
    patient = noisy_spec(passes=3, patience=2).identity()
    assert patient["settings"] == {**one["settings"], "patience": 2}


@pytest.mark.parametrize("benchmark", ["permuted-mnist", "split-cifar", "split-cub", "split-awa"])
def test_the_paper_s_benchmarks_allow_one_pass(benchmark):
    with pytest.raises(EngramError, match=f"passes must be 1 on training tasks, as {benchmark}"):
        specify(benchmark, "van", passes=2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"passes": 0}, "passes must be from 1 to 100, not 0"),
        ({"passes": 101}, "passes must be from 1 to 100, not 101"),
        ({"passes": 2.0}, "passes must be a whole number"),
        ({"passes": 1, "patience": 2}, "patience ends a task before all of its passes"),
        ({"held_out": 0.2}, "held_out is the part that patience looks at"),
        ({"patience": 2, "held_out": 1}, "held_out must be"),
        ({"patience": -1}, "patience must be"),
        ({"patience": 2, "optimizer": "adam"}, "patience goes back to the weights"),
        ({"method": "der"}, "passes must be 1 for der"),
    ],
)
def test_passes_that_cannot_be_are_refused(given, said):
    with pytest.raises(EngramError, match=said):
        noisy_spec(**given)


def test_what_cannot_be_held_out_is_refused():
    pairs = [(np.eye(3, dtype=np.float32), np.array(["a", "b", "c"]))] * 2
    from_tensors(pairs, pairs, name="single")
    spec = specify("single", "van", passes=2, overrides={"patience": "1", "batch_size": "1"})
    with pytest.raises(EngramError, match="patience must be 0 where no class of a task has two"):
        run(spec, [0])


@pytest.mark.parametrize("method", SEVERAL)
def test_more_passes_are_more_steps_and_every_method_takes_them(method):
    steps = []
    run(noisy_spec(method, passes=3), [0], progress=steps.append)
    assert steps[-1].step == steps[-1].steps == 2 * (3 * 32 // 8)


@pytest.mark.parametrize("memory", ["ring", "sample", "reservoir", "fifo"])
def test_a_memory_holds_every_example_once(memory):
    spec = noisy_spec(passes=4, memory=memory, memory_per_class=100)
    _, (state,) = run_whole(spec, [0])
    table = state["bank"]["table"]
    held = 64  # all of them
    assert held == 64
    rows = [tuple(row) for row in table["inputs"][0, :held].tolist()]
    assert set(Counter(rows).values()) == {1}


def test_mer_holds_every_example_once():
    _, (state,) = run_whole(noisy_spec("mer", passes=3, memory_size=100), [0])
    rows = [tuple(row) for row in state["memory"]["table"]["inputs"][0, :64].tolist()]
    assert set(Counter(rows).values()) == {1}


def test_the_held_out_part_is_apart_from_training_and_tests():
    spec = noisy_spec(passes=2, patience=1, held_out=0.25)
    stream, plain = (build_stream(each, [0], "cpu") for each in (spec, noisy_spec(passes=2)))
    for task in range(2):
        rows = [tuple(row) for row in stream.train(task).inputs[0].tolist()]
        aside = [tuple(r) for batch, _ in stream.held_out([task]) for r in batch.inputs.tolist()]
        tests = [tuple(row) for batch in stream.test(task) for row in batch.inputs.tolist()]
        before = [tuple(row) for row in plain.train(task).inputs[0].tolist()]
        assert sorted(rows + aside) == sorted(before)
        assert len(aside) == round(0.25 * len(before))
        assert not set(rows) & set(aside)
        assert not set(aside) & set(tests)
        labels = [label for batch, _ in stream.held_out([task]) for label in batch.labels.tolist()]
        assert set(labels) == {0, 1}


@pytest.mark.numerical
def test_a_task_ends_at_its_best_pass():
    """What follows the best pass changes nothing, and is as long as the patience."""
    given = {"method": "van", "benchmark": "noisy-one", "patience": 3, "learning_rate": 0.003}
    (outcome,), (state,) = run_whole(noisy_spec(passes=40, **given), [0])
    taken = int(outcome["facts"]["passes_taken"])
    assert 5 <= taken < 40
    (again,), (best,) = run_whole(noisy_spec(passes=taken - 3, **given), [0])
    assert again["facts"]["passes_taken"] == taken - 3
    assert same_bits(best["parameters"], state["parameters"])
    assert outcome["accuracy"] == again["accuracy"]


def test_passes_that_all_get_better_are_all_taken():
    from_tensors(noisy(1, count=30, noise=0), name="clean")
    spec = specify("clean", "van", passes=3, overrides={"patience": "3", "batch_size": "8"})
    (outcome,) = run(spec, [0])
    assert outcome.facts["passes_taken"] == 3


@pytest.fixture
def _doubles(monkeypatch):
    """Let the tensors be in double precision, where runs of a stack round nothing away."""
    stream = type(build_stream(noisy_spec(), [0], "cpu"))
    initialise, name = stream.initialise, "initialise"
    monkeypatch.setattr(stream, name, lambda *given: initialise(*given).double())
    monkeypatch.setattr(stream, "normalise", lambda _, inputs: inputs.double())


@pytest.mark.numerical
@pytest.mark.usefixtures("_doubles")
@pytest.mark.parametrize("method", ["mega-ii", "ewc", "prog-nn", "mer", "icarl", "multi-task"])
def test_a_stack_of_patient_runs_is_what_each_is_alone(method):
    spec = noisy_spec(method, passes=12, patience=2)
    seeds = [0, 1, 2]
    stacked, _ = run_whole(spec, seeds)
    taken = set()
    for seed, mine in zip(seeds, stacked, strict=True):
        (alone,), _ = run_whole(spec, [seed])
        assert mine["accuracy"] == alone["accuracy"]
        assert mine["facts"]["passes_taken"] == alone["facts"]["passes_taken"]
        taken.add(mine["facts"]["passes_taken"])
    assert len(taken) > 1  # or nobody has waited for anybody


@pytest.mark.numerical
@pytest.mark.parametrize("method", SEVERAL)
def test_a_patient_run_that_is_stopped_anywhere_ends_with_the_same_bits(method, tmp_path):
    spec = noisy_spec(method, passes=4, patience=1)
    whole, deaths = run_whole(spec, [0, 1]), 0
    while True:
        place = checkpoint(tmp_path, Dying, lives=5)
        try:
            again = run_whole(spec, [0, 1], checkpoint=place)
            break
        except Killed:
            deaths += 1
    assert deaths > 1
    assert same_bits(again, whole)
