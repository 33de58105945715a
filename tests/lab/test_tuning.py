"""Tuning: the grid, several passes, and a stream that holds nothing to leak."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from split_worlds import SIDE, build, marks

from engram.app.runs import address, read_lines
from engram.errors import EngramError
from engram.lab.benchmarks import PermutedMnist, load_mnist
from engram.lab.benchmarks import names as benchmarks
from engram.lab.methods import method_entry
from engram.lab.methods import names as methods
from engram.lab.protocol import specify, tuned_settings, tuning_specs
from engram.lab.protocol.trainer import visits

ROOT = Path(__file__).parents[2]
SEARCHED = [name for name in methods() if method_entry(name).search]


@pytest.mark.parametrize("benchmark", [name for name in benchmarks() if ":" not in name])
@pytest.mark.parametrize("method", SEARCHED)
def test_every_trial_is_on_tuning_tasks(benchmark, method):
    specs = tuning_specs(benchmark, method)
    search = method_entry(method).search
    assert {spec.split for spec in specs} == {"tuning"}
    assert {spec.tasks for spec in specs} == {3}
    assert len(specs) == np.prod([len(values) for values in search.values()])
    tried = {tuple(tuned_settings(spec).values()) for spec in specs}
    assert len(tried) == len(specs)
    usual = specify(benchmark, method, split="tuning").settings
    for spec in specs:
        assert {name for name in usual if usual[name] != spec.settings[name]} <= set(search)


def test_mega_i_searches_the_paper_s_epsilons():
    tried = [spec.settings["epsilon"] for spec in tuning_specs("permuted-mnist", "mega-i")]
    assert tried == [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]


def test_what_is_given_holds_in_every_trial_and_is_not_searched():
    given = {"learning_rate": "0.02", "batch_size": "5"}
    specs = tuning_specs("permuted-mnist", "pi", passes=2, examples=100, overrides=given)
    assert [spec.settings["strength"] for spec in specs] == [1e-3, 1e-2, 0.1, 1.0, 10.0]
    for spec in specs:
        assert (spec.settings["learning_rate"], spec.settings["batch_size"]) == (0.02, 5)
        assert (spec.passes, spec.examples) == (2, 100)
    assert tuned_settings(specs[0]) == {"learning_rate": 0.02, "strength": 0.001}


@pytest.mark.parametrize(
    ("method", "options", "sentence"),
    [
        ("mega-ii", {}, "mega-ii declares no settings to tune"),
        ("mega-i", {"overrides": {"epsilon": "1"}}, "settings must leave one of epsilon to"),
        ("mega-i", {"overrides": {"epsilom": "1"}}, "did you mean 'epsilon'"),
        ("mega-i", {"passes": 0}, "passes must be from 1 to 100, not 0"),
        ("mega-i", {"passes": 101}, "passes must be from 1 to 100, not 101"),
    ],
)
def test_a_search_that_cannot_be_is_refused(method, options, sentence):
    with pytest.raises(EngramError, match=sentence):
        tuning_specs("permuted-mnist", method, **options)


def test_training_tasks_have_one_pass():
    with pytest.raises(EngramError, match="passes must be 1 on training tasks"):
        specify("permuted-mnist", "van", passes=2)
    tuning = specify("permuted-mnist", "van", split="tuning", passes=2)
    with pytest.raises(EngramError, match="passes must be 1 on training tasks"):
        dataclasses.replace(tuning, split="training")


def test_one_pass_is_no_part_of_an_address_and_more_are():
    one, two = (specify("permuted-mnist", "van", split="tuning", passes=n) for n in (1, 2))
    assert "passes" not in one.identity()
    assert two.identity() == {**one.identity(), "passes": 2, "numerics": [2, 1]}


EXAMPLES = {
    "ResNet18": f"{ROOT / 'examples' / 'resnet18.py'}:ResNet18",
    "ViT": f"{ROOT / 'examples' / 'vit.py'}:ViT",
}


@pytest.mark.parametrize("file", sorted((ROOT / "results").glob("*.jsonl")), ids=lambda f: f.stem)
def test_committed_results_are_found(file):
    """A spec of today has the address of a result from before, unless the numerics have moved."""
    for row in read_lines(file):
        given = row.identity
        texts = {name: str(value) for name, value in given["settings"].items()}
        sizes = {"tasks": given["tasks"], "examples": given["examples"]}
        network = given.get("network", {})
        spec = specify(
            given["benchmark"],
            given["method"],
            **sizes,
            overrides=texts,
            split=given["split"],
            network=EXAMPLES[network["name"]] if network else None,
            network_arguments=network.get("arguments"),
        )
        embedded = given["benchmark"] == "permuted-mnist"  # other data need not be at hand
        data = spec.identity()["data"] if embedded else given["data"]
        found = spec.description() | {"data": data}
        if found["numerics"] == given["numerics"]:
            assert address(found, row.seed) == row.address


def labels(runs=2, count=7):
    return torch.zeros(runs, count, dtype=torch.int64)


def test_one_pass_leaves_the_examples_alone():
    assert visits(labels(), 1, [0, 1], 0) is None


def test_every_pass_has_every_example_once_the_first_as_they_come():
    order = visits(labels(), 3, [4, 9], task=1)
    assert order.shape == (2, 21)
    assert torch.equal(order[:, :7], torch.arange(7).expand(2, 7))
    for part in order.split(7, dim=1):
        assert torch.equal(part.sort(1).values, torch.arange(7).expand(2, 7))


def test_every_pass_of_every_task_and_seed_has_an_order_of_its_own():
    orders = set()
    for task in (0, 1):
        for mine in visits(labels(2, 50), 3, [4, 9], task):
            orders |= {tuple(order.tolist()) for order in mine[50:].split(50)}
    assert len(orders) == 2 * 2 * 2
    assert tuple(range(50)) not in orders


def test_passes_are_the_same_alone_and_stacked():
    stacked = visits(labels(), 3, [4, 9], 2)
    for run, seed in enumerate((4, 9)):
        assert torch.equal(visits(labels(1), 3, [seed], 2)[0], stacked[run])


def held(thing, seen=None):
    """Yield every tensor and array that can be reached from an object."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, type | str | bytes | int | float | None):
        return
    seen.add(id(thing))
    if isinstance(thing, torch.Tensor | np.ndarray):
        yield np.asarray(thing)
        return
    if isinstance(thing, dict):
        inside = [*thing.keys(), *thing.values()]
    elif isinstance(thing, list | tuple | set | frozenset):
        inside = list(thing)
    else:
        inside = list(getattr(thing, "__dict__", {}).values())
        inside += [cell.cell_contents for cell in getattr(thing, "__closure__", None) or ()]
    for part in inside:
        yield from held(part, seen)


@pytest.mark.parametrize(
    ("name", "tuning_classes", "size"),
    [
        ("split-cifar", range(15), 32),
        ("split-cub", range(30), SIDE),
        ("split-awa", range(15), SIDE),
    ],
)
@pytest.mark.usefixtures("split_worlds")
def test_a_stream_for_tuning_holds_no_image_of_a_training_class(name, tuning_classes, size):
    def labels(stream):
        """Return the classes of all images that a stream holds, by the marks on them."""
        images = [each for each in held(stream) if each.dtype == np.uint8]
        assert images
        marked = [mark for each in images for mark in marks(each.reshape(-1, 3, size, size))]
        return {label for label, _ in marked}

    tuning = build(name, seeds=(0,), tasks=3, tuning=True)
    for task in range(3):  # whatever it reads on the way it might keep
        tuning.train(task)
        list(tuning.test(task))
    assert labels(tuning) == set(tuning_classes)
    assert labels(build(name, seeds=(0,), tasks=17)).isdisjoint(tuning_classes)


def permutations(stream):
    """Return every permutation of the pixels that a stream holds."""
    rows = [each for each in held(stream) if each.dtype == np.int64 and each.shape[-1:] == (784,)]
    return {tuple(row) for each in rows for row in each.reshape(-1, 784).tolist()}


@pytest.mark.parametrize("shared", ["true", "false"])
def test_a_stream_for_tuning_holds_no_training_permutation_and_no_test_image(shared):
    given = {"shared_permutations": shared}
    settings = specify("permuted-mnist", "van", overrides=given).stream_settings()
    tuning = PermutedMnist([0, 1], 3, 10, settings=settings, tuning=True)
    training = PermutedMnist([0, 1], 17, 10, settings=settings)
    assert len(permutations(tuning)) == 2 * 3
    assert permutations(tuning).isdisjoint(permutations(training))
    mnist = load_mnist()
    images = [each for each in held(tuning) if each.dtype == np.uint8]
    assert [len(each) for each in images] == [len(mnist.train_images)]
    # What it is scored on is the rest of the training images, whole.
    scored = torch.cat([batch.inputs.sum(-1) for batch in tuning.test(0)])
    kept = mnist.validation_images.float().div(255).sum(-1)
    torch.testing.assert_close(scored.sort().values, kept.sort().values)
