"""Runs: specs, the single pass, what is measured and when, and the same run on every path."""

import math
import platform
from pathlib import Path

import pytest
import torch

from engram import rules
from engram.app.runs import address, record
from engram.errors import EngramError
from engram.lab.benchmarks import benchmark
from engram.lab.methods import Entry, method_entry, names, register
from engram.lab.protocol import Spec, run, settings_help, specify
from engram.testing import Subject

METHODS = [
    "a-gem", "er", "gem", "mega-i", "mega-i-equal",
    "mega-ii", "mega-ii-unbalanced", "multi-task", "van",
]  # fmt: skip


@pytest.fixture(autouse=True)
def few_test_images(few_mnist):
    """Score on 200 test images instead of 10,000."""
    few_mnist(200)


def small(method, **overrides):
    texts = {name: str(value) for name, value in overrides.items()}
    return specify("permuted-mnist", method, tasks=3, examples=60, overrides=texts)


def test_the_methods_of_the_core_are_registered():
    assert set(METHODS) <= set(names())


def test_a_spec_is_complete_and_has_the_paper_s_settings():
    assert specify("permuted-mnist", "van").settings["learning_rate"] == 0.03
    spec = specify("permuted-mnist", "mega-ii")
    assert (spec.tasks, spec.examples) == (17, 55_000)
    assert spec.settings == {
        "learning_rate": 0.1,
        "batch_size": 10,
        "optimizer": "sgd",
        "optimizer_settings": "",
        "schedule": "constant",
        "schedule_settings": "",
        "schedule_every": 1,
        "reference_batch": 256,
        "memory_per_class": 25,
        "memory": "ring",
        "max_age": 0,
        "max_angle": math.pi,
        "least_area": 0.0,
        "shared_permutations": False,
        "curve_images": 10_000,
        "precision": "float32",
    }
    assert {item.name for item in settings_help("permuted-mnist", "mega-ii")} == set(spec.settings)


def test_overrides_have_the_type_of_their_field():
    spec = small("mega-i", epsilon="1e-2", batch_size="5", shared_permutations="true")
    assert spec.settings["epsilon"] == 0.01
    assert spec.settings["batch_size"] == 5
    assert spec.settings["shared_permutations"] is True


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"benchmark": "permuted-mnits"}, "did you mean 'permuted-mnist'"),
        ({"method": "mega-3"}, "no method 'mega-3'"),
        ({"tasks": 0}, "tasks must be at least 1, not 0"),
        ({"examples": 0}, "examples must be from 1 to 55000"),
        ({"examples": 55_001}, "examples must be from 1 to 55000"),
        ({"overrides": {"epsilom": "1"}}, "did you mean 'epsilon'"),
        ({"overrides": {"epsilon": "small"}}, "epsilon must be a number, not 'small'"),
        (
            {"overrides": {"epsilon": "-1"}},
            "epsilon must be a finite number and at least 0, not -1",
        ),
        (
            {"overrides": {"epsilon": "nan"}},
            "epsilon must be a finite number and at least 0, not nan",
        ),
        (
            {"overrides": {"learning_rate": "0"}},
            "learning_rate must be a finite number and above 0, not 0",
        ),
        ({"overrides": {"learning_rate": "inf"}}, "learning_rate must be a finite number"),
        ({"overrides": {"batch_size": "2.5"}}, "batch_size must be a whole number"),
        ({"overrides": {"memory": "rings"}}, "did you mean 'ring'"),
        ({"overrides": {"shared_permutations": "maybe"}}, "must be true or false"),
        ({"examples": 5}, "batch_size must be at most the 5 examples"),
    ],
)
def test_bad_values_are_refused_in_one_sentence(arguments, sentence):
    given = {"benchmark": "permuted-mnist", "method": "mega-i"} | arguments
    with pytest.raises(EngramError, match=sentence.replace("(", r"\(")) as caught:
        specify(given.pop("benchmark"), given.pop("method"), **given)
    assert "\n" not in str(caught.value)


def test_identity_holds_what_decides_the_numbers():
    one = small("mega-i").identity()
    assert one == small("mega-i").identity()
    assert one != small("mega-i", epsilon="0.5").identity()
    assert one["data"] == benchmark("permuted-mnist").checksum(None)


def test_a_later_setting_moves_no_address_while_it_has_its_default():
    assert not {"curve_images", "precision"} & set(small("van").identity()["settings"])
    assert small("van", precision="tf32").identity()["settings"]["precision"] == "tf32"
    assert small("van", curve_images=100).identity()["settings"]["curve_images"] == 100


def test_learning_curves_may_be_measured_on_fewer_images():
    (few,), (all_,) = run(small("van", curve_images=100), [0]), run(small("van"), [0])
    assert few.accuracy == all_.accuracy
    assert few.curve != all_.curve
    assert all(round(100 * point, 9) == round(100 * point) for point in few.curve[0])


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_and_is_measured_as_the_protocol_says(method):
    (outcome,) = run(small(method), [0])
    assert outcome.failure is None
    joint = method == "multi-task"
    for after, row in enumerate(outcome.accuracy):
        for task, value in enumerate(row):
            measured = after == 2 if joint else task <= after
            assert (value is not None) == measured
    # 60 examples are six batches: before the first, and after each.
    assert [len(points) for points in outcome.curve] == ([] if joint else [7, 7, 7])
    if not joint:
        assert [points[-1] for points in outcome.curve] == [
            outcome.accuracy[task][task] for task in range(3)
        ]


@pytest.mark.numerical
@pytest.mark.usefixtures("double_mnist")
@pytest.mark.parametrize("method", ["van", "gem", "mega-ii", "multi-task"])
def test_a_run_is_the_same_alone_or_stacked(method):
    spec = small(method)
    for seed, together in enumerate(run(spec, [0, 1])):
        (alone,) = run(spec, [seed])
        assert (alone.accuracy, alone.curve) == (together.accuracy, together.curve)


def test_a_run_on_a_cpu_tells_which_one_and_is_filed_without(monkeypatch, tmp_path):
    """Where the model is not told, by its architecture."""
    told, read_text = tmp_path / "cpuinfo", Path.read_text

    def instead(path, *given, **named):
        return read_text(told if path == Path("/proc/cpuinfo") else path, *given, **named)

    monkeypatch.setattr(Path, "read_text", instead)
    for model in (platform.machine(), "Some CPU @ 2 GHz"):
        if model != platform.machine():
            told.write_text(f"vendor_id\t: Somebody\nmodel name\t: {model}\n" * 2)
        (outcome,) = run(small("van"), [0])
        assert outcome.device == "cpu"
        capability = torch.backends.cpu.get_cpu_capability()
        assert outcome.facts["cpu"] == f"{model} ({capability})"
        row = record(small("van"), outcome, "engram run")
        assert row.outcome["facts"]["cpu"] == outcome.facts["cpu"]
        assert row.address == address(small("van").identity(), 0)


@pytest.mark.numerical
def test_a_run_is_deterministic():
    assert run(small("mega-i"), [5])[0].accuracy == run(small("mega-i"), [5])[0].accuracy


@pytest.mark.numerical
def test_equal_weights_have_two_names_and_one_implementation():
    assert run(small("er"), [0])[0].accuracy == run(small("mega-i-equal"), [0])[0].accuracy


@pytest.mark.parametrize("memory", ["ring", "sample", "reservoir", "fifo"])
def test_every_memory_serves_mega(memory):
    (outcome,) = run(small("mega-ii", memory=memory, memory_per_class=3), [0])
    assert outcome.failure is None
    assert outcome.facts["memory_bytes"] > 0


@pytest.mark.parametrize(
    ("method", "setting"),
    [("mega-ii", "memory_per_class"), ("gem", "memory_per_class"), ("mer", "memory_size")],
)
def test_a_memory_takes_no_more_room_than_there_are_examples(method, setting):
    few = {"draws": 2} if method == "mer" else {}
    whole, huge = (run(small(method, **few, **{setting: n}), [0])[0] for n in (180, 2_000_000_000))
    assert huge.accuracy == whole.accuracy
    assert huge.facts["memory_bytes"] == 3 * 60 * (784 + 8)


@pytest.mark.parametrize("memory", ["ring", "sample", "reservoir", "fifo"])
def test_algorithm_1_mixes_from_the_second_batch_on_the_tables_from_the_second_task(memory):
    settings = {"batch_size": 4, "memory": memory}
    entry = method_entry("mega-ii")
    subject = Subject(entry, entry.settings(**settings))
    rows = {(m.task, m.step): m.mix.losses.shape[1] for m in subject.fresh_run().teach() if m.mix}
    at_once = memory in ("reservoir", "fifo")
    expected = {(task, step): 2 if task > 0 or (at_once and step > 0) else 1 for task, step in rows}
    assert rows == expected


def test_a_diverging_seed_is_named_and_does_not_stop_the_others():
    spec = Spec(
        **(vars(small("van")) | {"settings": small("van").settings | {"learning_rate": 1e30}})
    )
    (outcome,) = run(spec, [0])
    assert "non-finite in task 1 of 3" in outcome.failure


def test_progress_reaches_the_end():
    seen = []
    run(small("van"), [0], progress=seen.append)
    assert seen[-1].step == seen[-1].steps == 18


@pytest.mark.numerical
@pytest.mark.usefixtures("double_mnist")
def test_the_first_task_is_plain_training_for_every_memory_of_finished_tasks():
    van = run(small("van", learning_rate=0.1), [0])[0]
    for method in ("er", "a-gem", "gem", "mega-i", "mega-ii"):
        assert run(small(method), [0])[0].accuracy[0] == van.accuracy[0]


@pytest.mark.numerical
def test_mega_ii_steps_as_the_paper_s_formula_says():
    """One step of the engine against float64 vectors put together by hand."""
    from engram.lab.engine import Batch, Rows
    from engram.lab.networks import MLP

    torch.manual_seed(0)
    network = MLP((6, 5, 3))
    start = torch.randn(2, network.size, dtype=torch.float64)
    batches = [
        Batch(torch.randn(2, 4, 6, dtype=torch.float64), torch.randint(0, 3, (2, 4))) for _ in "gr"
    ]
    g, r = torch.empty_like(start), torch.empty_like(start)
    rows = Rows(network, start.clone())
    loss, reference_loss = rows.gradient(batches[0], g), rows.gradient(batches[1], r)
    rows.step(rules.MEGA2(), 0.1, batches[0], batches[1])
    for run_ in range(2):
        direction = (
            loss[run_] * g[run_] / g[run_].norm() + reference_loss[run_] * r[run_] / r[run_].norm()
        )
        expected = start[run_] - 0.1 * g[run_].norm() * direction / direction.norm()
        torch.testing.assert_close(rows.parameters[run_], expected)


def test_settings_of_every_method_are_documented():
    for name in names():
        for item in settings_help("permuted-mnist", name):
            assert item.help
        assert method_entry(name).name == name


def test_a_name_that_another_method_has_is_refused():
    van = method_entry("van")
    register(van)  # the same again, as when a notebook's cell is run twice

    class Other(van.build):
        pass

    with pytest.raises(
        EngramError, match=r"name must not be 'van', which engram\.lab\.methods\.van has"
    ):
        register(Entry("van", Other, van.settings))
    assert method_entry("van") is van


def test_gem_s_reference_batch_is_told_to_be_of_each_task():
    told = {item.name: item.help for item in settings_help("permuted-mnist", "gem")}
    assert "each past task" in told["reference_batch"]
