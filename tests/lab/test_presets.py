"""The limited-examples and many-tasks settings by name."""

import pytest

from engram.lab.benchmarks import PRESETS
from engram.lab.methods import method_entry, names
from engram.lab.protocol import settings_help, specify, tuning_specs

LIMITED = {f"permuted-mnist-{examples}": (20, examples) for examples in (200, 400, 600)}
MANY = {f"many-permutations-{tasks}": (tasks, 200) for tasks in (30, 50, 70)}


def test_there_are_the_paper_s_six():
    assert set(PRESETS) == set(LIMITED | MANY)


@pytest.mark.parametrize(("name", "size"), (LIMITED | MANY).items())
def test_a_preset_is_an_ordinary_spec_under_another_name(name, size):
    tasks, examples = size
    texts = {"memory_per_class": "6", "learning_rate": "0.1"}
    spelled = specify("permuted-mnist", "a-gem", tasks=tasks, examples=examples, overrides=texts)
    assert specify(name, "a-gem") == spelled
    assert specify(name, "a-gem").identity() == spelled.identity()


@pytest.mark.parametrize("method", names())
def test_every_memory_has_room_for_six_of_each_class_of_each_task(method):
    settings = specify("permuted-mnist-600", method).settings
    usual = specify("permuted-mnist", method).settings
    changed = {name for name in settings if settings[name] != usual[name]}
    if "memory_size" in settings:
        assert settings["memory_size"] == 6 * 10 * 20
        assert changed == {"memory_size"}
    elif "memory_per_class" in settings:
        assert (settings["memory_per_class"], settings["learning_rate"]) == (6, 0.1)
        assert changed <= {"memory_per_class", "learning_rate"}
    else:
        assert not changed
    told = {item.name: item.value for item in settings_help("permuted-mnist-600", method)}
    assert told == settings


def test_what_is_given_wins():
    spec = specify(
        "many-permutations-30",
        "mega-ii",
        tasks=2,
        examples=50,
        overrides={"memory_per_class": "3", "learning_rate": "0.5"},
    )
    assert (spec.tasks, spec.examples) == (2, 50)
    assert spec.settings["memory_per_class"] == 3
    assert spec.settings["learning_rate"] == 0.5
    assert specify("permuted-mnist-200", "mer", tasks=3).settings["memory_size"] == 6 * 10 * 3


def test_tuning_is_on_the_tuning_tasks_with_as_few_examples():
    specs = tuning_specs("permuted-mnist-600", "mega-i")
    assert len(specs) == len(method_entry("mega-i").search["epsilon"])
    for spec in specs:
        assert (spec.benchmark, spec.split) == ("permuted-mnist", "tuning")
        assert (spec.tasks, spec.examples) == (3, 600)
        assert spec.settings["memory_per_class"] == 6
