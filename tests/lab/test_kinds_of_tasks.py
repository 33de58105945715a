"""Several labels, numbers, scenarios by name, and one long stream without task boundaries."""

import numpy as np
import pytest
import torch
from dying_checkpoints import Dying, Killed, checkpoint
from own_worlds import write_csv
from tiny_worlds import run_whole, same_bits

from engram.errors import EngramError
from engram.lab.benchmarks import Batch, from_tensors
from engram.lab.engine import mean_loss
from engram.lab.methods import method_entry, names
from engram.lab.protocol import build_stream, run, specify
from engram.lab.targets import Labels, Numbers

FAST = {"batch_size": "8", "learning_rate": "0.02", "memory_per_class": "4", "draws": "2"}
LEARNERS = [name for name in names() if "numbers" in method_entry(name).targets]


def pairs(kind, tasks=3, count=40):
    source = np.random.default_rng(0)
    for task in range(tasks):
        inputs = source.normal(size=(count, 5)).astype(np.float32)
        both = inputs[:, :2] + inputs[:, 2:4] + 0.2 * task
        yield inputs, (both > 0).astype(int) if kind == "labels" else 50 + 7 * both


@pytest.fixture(scope="module", autouse=True)
def _known():
    for kind in ("labels", "numbers"):
        from_tensors(list(pairs(kind)), name=f"my-{kind}", target_kind=kind)
    grown = [
        (np.eye(6, dtype=np.float32).repeat(8, 0)[8 * task : 8 * task + 16], [task, task + 1] * 8)
        for task in range(3)
    ]
    from_tensors([(inputs, np.array(labels)) for inputs, labels in grown], name="growing")


def spec_of(benchmark, method="er", **overrides):
    known = vars(method_entry(method).settings())
    given = {name: text for name, text in FAST.items() if name in known}
    return specify(
        benchmark, method, overrides=given | {key: str(text) for key, text in overrides.items()}
    )


@pytest.mark.numerical
@pytest.mark.parametrize("kind", ["labels", "numbers"])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_mean_loss_and_its_gradient_are_autograd_s(kind, groups, weighted):
    source = torch.Generator().manual_seed(1)
    outputs = torch.randn(2, 6, 2, dtype=torch.float64, generator=source, requires_grad=True)
    targets = torch.randint(2, (2, 6, 2), generator=source).double()
    target = {"labels": Labels, "numbers": Numbers}[kind](("a", "b"))
    weights = torch.rand(2, 6, dtype=torch.float64, generator=source) if weighted else None
    batch = Batch(targets, targets, weights, groups, None, target, targets)
    losses, gradient = mean_loss(outputs.detach().clone(), batch)
    shares = groups / 6 if weights is None else weights
    each = torch.nn.functional.mse_loss if kind == "numbers" else (
        torch.nn.functional.binary_cross_entropy_with_logits
    )  # fmt: skip
    wanted = (
        (each(outputs, targets, reduction="none").mean(-1) * shares).view(2, groups, -1).sum(-1)
    )
    torch.testing.assert_close(losses, wanted.detach())
    torch.testing.assert_close(gradient, *torch.autograd.grad(wanted.sum(), outputs))


@pytest.mark.parametrize("kind", ["labels", "numbers"])
@pytest.mark.parametrize("method", LEARNERS)
def test_every_method_that_says_so_learns_them(kind, method):
    (outcome,) = run(spec_of(f"my-{kind}", method), [0])
    assert outcome.failure is None
    assert outcome.facts["target"] == kind
    assert all(0 <= score <= 1 for score in outcome.accuracy[-1])


@pytest.mark.parametrize("kind", ["labels", "numbers"])
def test_what_needs_classes_is_refused_by_name(kind):
    with pytest.raises(EngramError, match=f"icarl learns classes and no {kind}"):
        spec_of(f"my-{kind}", "icarl")
    for given in ({"heads": "by-task"}, {"scenario": "domain-incremental"}):
        with pytest.raises(EngramError, match=f"must not be given for {kind}"):
            spec_of(f"my-{kind}", **given)


@pytest.mark.parametrize("kind", ["labels", "numbers"])
def test_the_scores_are_those_of_the_model_that_is_left(kind):
    """R² and F1 of every task's tests, from the weights, by formulas of their own."""
    spec = spec_of(f"my-{kind}")
    (outcome,), (state,) = run_whole(spec, [0])
    stream = build_stream(spec, [0], "cpu")
    network = stream.network()
    for task, score in enumerate(outcome["accuracy"][-1]):
        (batch,) = stream.test(task)
        outputs = network.predict(state["parameters"], batch.inputs, None, state["buffers"])[0]
        true = stream.targets(batch.labels).numpy()
        if kind == "labels":
            said = (outputs > 0).numpy()
            hits = (said & (true > 0)).sum()
            wanted = 2 * hits / (said.sum() + (true > 0).sum())
        else:
            error = outputs.double().numpy() * stream.target.scales + stream.target.means - true
            spread = true - true.mean(0)
            wanted = max(0, (1 - (error**2).sum(0) / (spread**2).sum(0)).mean())
        assert score == pytest.approx(wanted, abs=1e-6)
        assert wanted > 0.3


def test_numbers_are_learned_in_the_units_of_the_first_task_alone():
    stream = build_stream(spec_of("my-numbers"), [0], "cpu")
    rows = stream.train(0)
    first = stream.targets(rows.labels[0])
    assert stream.target.means == pytest.approx(first.mean(0).tolist())
    assert stream.target.scales == pytest.approx(first.std(0, correction=0).tolist())


@pytest.mark.numerical
@pytest.mark.parametrize("benchmark", ["my-labels", "my-numbers", "growing"])
@pytest.mark.parametrize("memory", ["ring", "reservoir"])
def test_a_run_that_is_stopped_anywhere_ends_with_the_same_bits(benchmark, memory, tmp_path):
    boundaries = "none" if memory == "reservoir" else "tasks"
    spec = spec_of(benchmark, "mega-ii", memory=memory, boundaries=boundaries)
    whole = run_whole(spec, [0, 1])
    while True:
        place = checkpoint(tmp_path, Dying, lives=3)
        try:
            again = run_whole(spec, [0, 1], checkpoint=place)
            break
        except Killed:
            continue
    assert same_bits(again, whole)


@pytest.mark.numerical
@pytest.mark.parametrize("benchmark", ["my-labels", "my-numbers"])
@pytest.mark.parametrize("method", ["mega-ii", "gem", "ewc", "mer", "prog-nn"])
def test_stacked_runs_are_what_each_is_alone(benchmark, method, monkeypatch):
    spec = spec_of(benchmark, method)
    stream = type(build_stream(spec, [0], "cpu"))
    initialise, name = stream.initialise, "initialise"
    monkeypatch.setattr(stream, name, lambda *given: initialise(*given).double())
    monkeypatch.setattr(stream, "normalise", lambda _, inputs: inputs.double())
    stacked, _ = run_whole(spec, [0, 1])
    for seed, mine in enumerate(stacked):
        (alone,), _ = run_whole(spec, [seed])
        np.testing.assert_allclose(mine["accuracy"][-1], alone["accuracy"][-1], rtol=1e-9)


def test_a_class_that_appears_later_is_no_answer_before_and_one_after():
    """Each of three tasks has a class of the one before, and one that is new."""
    stream = build_stream(spec_of("growing", "van"), [0], "cpu")
    for task in range(3):
        examples = stream.train(task)
        competing = stream.batch(examples.inputs, examples.labels).outputs
        for marks in (None if competing is None else competing[0], stream.task_outputs(task)):
            seen = range(4) if marks is None else marks[0].nonzero()[:, 0].tolist()
            assert set(seen) == set(range(task + 2))


def test_scenarios_are_names_for_heads_with_the_same_address():
    plain = spec_of("growing").identity()
    by_task = spec_of("growing", heads="by-task").identity()
    assert spec_of("growing", scenario="class-incremental").identity() == plain
    assert spec_of("growing", scenario="task-incremental").identity() == by_task
    assert not {"scenario", "boundaries"} & {*plain["settings"]}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"scenario": "domain-incremental"}, "where tasks have other classes, as 'task 2' has"),
        ({"scenario": "class-incremental", "heads": "by-task"}, "heads must be shared"),
        ({"scenario": "class"}, "There is no value of scenario 'class'"),
        ({"boundaries": "none"}, "boundaries must be tasks for er with these settings"),
        ({"boundaries": "none", "memory": "fifo", "max_age": 2}, "boundaries must be tasks for er"),
        ({"boundaries": "none", "heads": "by-task"}, "boundaries must be tasks where every task"),
        ({"boundaries": "some"}, "There is no value of boundaries 'some'"),
    ],
)
def test_scenarios_that_cannot_be_are_refused(given, said):
    with pytest.raises(EngramError, match=said):
        spec_of("growing", **given)


@pytest.mark.parametrize("method", ["ewc", "mas", "pi", "rwalk", "gem", "prog-nn", "icarl"])
def test_what_needs_boundaries_is_refused_without_them(method):
    with pytest.raises(EngramError, match=f"boundaries must be tasks for {method}"):
        spec_of("growing", method, boundaries="none")


def test_a_stream_without_boundaries_passes_once():
    with pytest.raises(EngramError, match="passes must be 1 without task boundaries"):
        specify("growing", "van", passes=2, overrides={"boundaries": "none", "batch_size": "4"})


def write_rent(path, rows=40):
    """Write rows whose numbers grow while their days go back."""
    source = np.random.default_rng(0)
    lines = [
        [rows - row, row, f"{source.normal():.3f}", ("yes", "no")[row % 3 > 0]]
        for row in range(rows)
    ]
    return write_csv(path, ["day", "number", "rent", "dog"], lines)


def table(path, **settings):
    given = {"batch_size": "4", **settings}
    return specify(f"table:{path}", "van", overrides=given)


@pytest.mark.parametrize(("time", "sign"), [("", 1), ("day", -1)])
def test_without_boundaries_rows_come_in_the_order_of_the_file_or_of_time(time, sign, tmp_path):
    path = write_rent(tmp_path / "rent.csv")
    given = {"target": "dog", "ignore": "rent,day", "boundaries": "none", "parts": "2"}
    spec = table(path, **given | ({"time": time, "ignore": "rent"} if time else {}))
    stream = build_stream(spec, [7], "cpu")
    numbers = torch.cat([stream.train(task).inputs[0, :, 0] for task in range(2)])
    assert len(numbers) == 32
    assert (sign * numbers.diff() > 0).all()


def test_without_boundaries_a_class_competes_from_the_batch_on_that_has_it():
    """The head grows by what has come, and by no part of the stream that is to come."""
    stream = build_stream(spec_of("growing", "van", boundaries="none"), [0], "cpu")
    assert stream.task_outputs(0).all()  # nothing is known: any answer may be
    met = set()
    for task in range(3):
        examples = stream.train(task)
        for start in range(0, examples.labels.shape[1], 4):
            labels = examples.labels[:, start : start + 4]
            marks = stream.batch(examples.inputs[:, start : start + 4], labels).outputs
            met |= set(labels[0].tolist())
            for seen in (marks[0, 0], marks[0, -1], stream.task_outputs(task)[0]):
                assert set(seen.nonzero()[:, 0].tolist()) == met
    assert met == set(range(4))


@pytest.mark.parametrize("boundaries", ["tasks", "none"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_outputs_of_a_class_that_has_not_come_are_as_they_were_drawn(boundaries, optimizer):
    """So that a head which grows would begin with the very same ones."""
    given = {"boundaries": boundaries, "memory": "reservoir", "optimizer": optimizer}
    spec = specify("growing", "er", tasks=1, overrides={**given, "batch_size": "4"})
    stream = build_stream(spec, [0], "cpu")
    network = stream.network()
    drawn = network.named_parameters(stream.initialise(network, 0))
    _, (state,) = run_whole(spec, [0])
    left = network.named_parameters(state["parameters"][0])
    moved = (left["5.weight"] != drawn["5.weight"]).any(1) | (left["5.bias"] != drawn["5.bias"])
    assert moved.tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"target": "rent,dog"}, "column 'dog' has 'yes' in data row 1"),
        ({"target": "rent,cat"}, "column for target called 'cat'"),
        ({"target": "rent", "target_kind": "labels"}, "target must be of yes and no"),
        ({"target": "rent", "target_kind": "number"}, "no value of target_kind 'number'"),
        ({"target": "rent", "target_kind": "classes"}, "--set target_kind=numbers"),
        ({"target": "rent,dog", "target_kind": "classes"}, "one column .*; for several give --set"),
        ({"target": ""}, "target must name the column to predict"),
    ],
)
def test_targets_that_cannot_be_read_are_refused(settings, said, tmp_path):
    path = write_rent(tmp_path / "rent.csv")
    given = {"target_kind": "numbers", "time": "day", "parts": "2", **settings}
    with pytest.raises(EngramError, match=said):
        table(path, **given)


def test_a_row_without_its_number_is_refused_by_its_place(tmp_path):
    path = write_csv(tmp_path / "gaps.csv", ["t", "a", "y"], [[1, 2, 3.5], [1, 2, "NA"]] * 4)
    with pytest.raises(EngramError, match="data row 2 has nothing in column 'y'"):
        table(path, target="y", target_kind="numbers", task="t")


@pytest.mark.parametrize(
    ("labels", "kind", "said"),
    [
        (np.ones((4, 2)) * 2, "labels", "one is 2"),
        (np.full((4, 1), np.nan), "numbers", "one is nan"),
        (np.zeros((4, 0)), "numbers", "numbers \\[N, numbers\\]"),
        (np.zeros(4), "labels", "labels \\[N, labels\\]"),
        (np.array(["a"] * 4), "numbers", "must be numbers, not <U1"),
        (np.zeros(4), "number", "There is no target_kind 'number'"),
        (np.zeros(4), None, "There is no target_kind None"),
    ],
)
def test_tensors_that_cannot_be_learned_are_refused(labels, kind, said):
    with pytest.raises(EngramError, match=said):
        from_tensors([(np.zeros((4, 2), np.float32), labels)], name="wrong", target_kind=kind)
