"""One's own tensors or arrays as a benchmark, and one's own data on the command line."""

import re

import numpy as np
import pytest
import torch
from own_worlds import write_drifting, write_photos

from engram.app.runs import record
from engram.errors import EngramError
from engram.lab.benchmarks import benchmark, from_tensors, names
from engram.lab.networks import MLP, ResNet
from engram.lab.protocol import run, settings_help, specify
from engram.plugins import REGISTRIES


def pairs(count=2, size=20, shape=(4,), seed=0, labels=2):
    source = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(size, *shape, generator=source), torch.arange(size) % labels)
        for _ in range(count)
    ]


def built(name="own", seeds=(0,), **settings):
    made = benchmark(name)
    chosen = made.settings(**settings)
    sized = made.sized(chosen)
    return made.build(seeds, sized.paper_tasks, sized.most_examples, settings=chosen)


def test_arrays_and_tensors_are_the_same_benchmark():
    tasks = pairs()
    from_tensors(tasks, name="own")
    one = specify("own", "van").identity()
    from_tensors([(x.numpy(), y.numpy()) for x, y in tasks], name="own")
    assert specify("own", "van").identity() == one
    assert re.fullmatch(r"tensors-own-[0-9a-f]{10}", one["benchmark"])
    from_tensors([(2 * x, y) for x, y in tasks], name="own")
    assert specify("own", "van").identity() != one


@pytest.mark.parametrize("memory", ["ring", "sample", "reservoir", "fifo"])
@pytest.mark.parametrize("method", ["er", "mega-ii"])
def test_the_first_class_may_come_in_a_later_task(method, memory):
    tasks = pairs(3, 24)
    from_tensors(
        [(x, y + first) for (x, y), first in zip(tasks, (2, 0, 1), strict=True)], name="own"
    )
    spec = specify("own", method, overrides={"memory": memory, "batch_size": "5"})
    assert [outcome.failure for outcome in run(spec, [0, 1])] == [None, None]


def test_inputs_are_served_as_they_are():
    tasks = pairs()
    from_tensors(tasks, name="own")
    stream = built()
    served = stream.train(1)
    seen = {tuple(row) for row in stream.normalise(served.inputs)[0].tolist()}
    (batch,) = stream.test(1)
    seen |= {tuple(row) for row in batch.inputs.tolist()}
    assert seen == {tuple(row) for row in tasks[1][0].tolist()}
    assert isinstance(stream.network(), MLP)


def test_tests_that_are_given_are_the_tests():
    tasks, tests = pairs(), pairs(size=7, seed=1)
    from_tensors(tasks, tests, name="own")
    stream = built()
    for task in range(2):
        assert stream.train(task).inputs.shape == (1, 20, 4)
        (batch,) = stream.test(task)
        assert (batch.inputs == tests[task][0]).all()
        assert (batch.labels == tests[task][1]).all()


def test_what_a_guess_would_have_is_known():
    """By hand: of the tests a is ¾ of the first task's, b ¼ there and ½ in the second, c ½ there.

    In the third all are d.
    """
    labels = ["aaab", "bbcc", "dddd"]
    train = [np.array(sorted(set(each) | {"a"})) for each in labels]
    tests = [(np.zeros((4, 1)), np.array(list(each))) for each in labels]
    from_tensors([(np.zeros((len(each), 1)), each) for each in train], tests, name="own")
    assert built().facts() == {"guess_percent": pytest.approx(100 * (0 + 0 + 1) / 3)}  # d
    by_task = built(heads="by-task").facts()
    assert by_task == {"guess_percent": pytest.approx(100 * (0.75 + 0.5 + 1) / 3)}
    made = benchmark("own")
    first = made.build((0,), 2, 2, settings=made.settings())  # stopped after two tasks
    assert first.facts() == {"guess_percent": pytest.approx(37.5)}  # a, or b


def test_8_bit_images_are_scaled_and_go_to_a_residual_network():
    images = torch.arange(256, dtype=torch.uint8).repeat(3)[:768].view(4, 3, 8, 8)
    from_tensors([(images, torch.arange(4) % 2)], name="own")
    stream = built()
    assert isinstance(stream.network(), ResNet)
    assert stream.normalise(images).max() == 1


@pytest.mark.parametrize("labels", [["b", "a"], [7, -3], [True, False]])
def test_labels_may_be_any_names_and_are_numbered_in_order(labels):
    x = np.arange(8.0)[:, None]
    from_tensors([(x, np.array(labels * 4))], name="own")
    stream = built()
    served = stream.train(0)
    first = served.inputs[0, :, 0].long() % 2 == 0
    assert (served.labels[0][first] == 1).all()
    assert (served.labels[0][~first] == 0).all()


@pytest.mark.parametrize(
    ("tasks", "tests", "sentence"),
    [
        ([], None, "tasks must be a list of pairs"),
        ([torch.zeros(3, 2)], None, r"tasks\[0\] must be a pair \(inputs, labels\), not a Tensor"),
        ([(torch.zeros(3), torch.zeros(3))], None, r"inputs \[N, features\] or .* not \[3\] and"),
        ([(torch.zeros(3, 2), torch.zeros(2))], None, r"not \[3, 2\] and \[2\]"),
        (
            [(torch.zeros(3, 2), torch.zeros(3))],
            None,
            "labels of .* must be whole numbers",
        ),
        (
            [(torch.full((4, 2), torch.nan), torch.arange(4))],
            None,
            r"of tasks\[0\] must be fin",
        ),
        ([*pairs(1), *pairs(1, shape=(5,))], None, r"tasks\[1\] must have inputs like those of"),
        (
            pairs(2),
            pairs(1),
            r"a pair for each task, .*: 2 of \[4\] in tasks, 1 of",
        ),
        (pairs(1), pairs(1, labels=3), "'task 1' of tasks has test examples of '2', which it has"),
        (
            pairs(1, labels=1),
            None,
            "must have two classes or more to tell apart, and has one",
        ),
    ],
)
def test_bad_tensors_are_refused_in_one_sentence(tasks, tests, sentence):
    with pytest.raises(EngramError, match=sentence) as caught:
        from_tensors(tasks, tests, name="own")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("My data", "name must be of small letters, digits and hyphens, as 'my-data'"),
        ("split-cifar", "name must not be 'split-cifar'"),
        ("permuted-mnist-200", "name must not be 'permuted-mnist-200'"),
    ],
)
def test_a_name_is_plain_and_not_the_paper_s(name, sentence):
    with pytest.raises(EngramError, match=sentence):
        from_tensors(pairs(), name=name)


@pytest.mark.usefixtures("plugins_apart")
def test_an_unknown_benchmark_lists_every_kind():
    known = REGISTRIES["benchmarks"]
    for name in known.names():  # other tests' would make the sentence too long
        if name in known.names() and name not in known.ours():
            known.forget(known.origin(name))
    with pytest.raises(EngramError) as caught:
        specify("fodler:photos", "van")
    for name in ("split-cub", "permuted-mnist-600", "many-permutations-30", "folder:PATH"):
        assert name in str(caught.value)
        assert name in names()


def test_settings_are_told_without_reading_any_data(tmp_path):
    told = settings_help(f"table:{tmp_path / 'missing.csv'}", "mega-ii")
    assert {"target", "task", "time", "period", "heads", "learning_rate"} <= {i.name for i in told}
    told = {item.name: item for item in settings_help("folder:missing", "mega-ii")}
    assert told["learning_rate"].value == 0.03
    assert "nobody says which task" in told["heads"].help
    assert {item.name: item.value for item in settings_help("folder:missing", "icarl")}[
        "memory_size"
    ] == 0


def execute_here(units, store, run, *, command, **_):
    for unit in units:
        (spec,) = unit.specs
        store.add([record(spec, made, command) for made in run(spec, unit.seeds)])
    return 0


@pytest.mark.parametrize("kind", ["folder", "table"])
def test_the_command_line_prints_and_files_one_s_own_data_by_its_name(
    kind, tmp_path, monkeypatch, engram
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if kind == "folder":
        settings = ("size=16",)
        write_photos(tmp_path / "My data", {"a": {"cat": 8, "dog": 8}})
    else:
        settings = ("target=bought", "time=day", "period=quarter")
        write_drifting(tmp_path / "My data.csv")
    path = tmp_path / ("My data" if kind == "folder" else "My data.csv")
    monkeypatch.setattr("engram.app.runs.execute", execute_here)
    store = tmp_path / "results" / "store.sqlite"
    options = {"seeds": 1, "device": "cpu", "store": store, "settings": settings}
    code, out, _ = engram("run", f"{kind}:{path}", "van", **options)
    assert code == 0
    title, *lines = out.splitlines()
    size = "1 tasks of up to 12" if kind == "folder" else "4 tasks of up to 48"
    assert re.fullmatch(rf"{kind}-my-data-[0-9a-f]{{10}}, {size} examples", title.strip())
    assert any(re.match(r" van +\d", line) for line in lines)
    guess = "Always saying the most frequent class would have 50.00 % average accuracy."
    assert lines[-2] == guess  # both classes are equally frequent
    assert f"Plot: {tmp_path}" in lines[-1]
    again = engram("results", "--store", store).out.splitlines()  # which does not know the path
    assert again[0].strip() == title.strip()
    assert any(re.match(r" van +\d", line) for line in again)
    assert again[-1] == guess


def test_runs_from_python_need_nothing_but_the_name():
    from_tensors(pairs(3), name="own")
    (outcome,) = run(specify("own", "mega-ii", overrides={"heads": "by-task"}), [0])
    assert outcome.failure is None
    assert specify("own", "mega-ii").settings["learning_rate"] == 0.1
