"""Runs that differ in a setting train as one, and end as each does alone."""

import json
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
import torch
from dying_checkpoints import Dying, Killed, checkpoint
from tiny_worlds import run_whole, same_bits, tiny_spec

from engram.app.runs import Store, record
from engram.errors import EngramError
from engram.lab import protocol
from engram.lab.methods import Entry, MethodSettings, Setup, method_entry, names, registry
from engram.lab.protocol import run, specify, stack_key, stacking
from engram.lab.settings import setting
from engram.rules import Rule
from engram.testing import Subject, check_method, checks

VALUES = {
    "learning_rate": (0.1, 0.02, 0.05),
    "epsilon": (1.0, 0.0, 5.0),
    "max_angle": (0.1, 3.0, 1.0),
    "least_area": (0.0, 1e-3, 1e3),
    "margin": (0.5, 0.0, 2.0),
    "ridge": (1e-3, 10.0, 1.0),
    "strength": (1.0, 0.0, 0.1),
    "gamma": (0.1, 1.0, 0.5),
    "beta": (0.03, 1.0, 0.5),
    "alpha": (0.3, 0.0, 2.0),
    "average": (0.9, 0.5, 0.1),
}
"""Such as make a difference on tiny tasks."""

OPTIONS = {
    ("mer", "beta"): {"algorithm": "batches"},
    ("recommended", "epsilon"): {"rule": "mega-i"},
}
BY_THEMSELVES = {"recommended": {"updates", "alpha", "rule"}}  # they decide what a step does
EVERY = [(method, name) for method in names() for name in method_entry(method).varies]
SEEDS = [0, 1, 0]


def specs_of(method, name):
    # At the usual rate of tiny tasks no unit of some networks is left on.
    usual = {"learning_rate": 0.1, **OPTIONS.get((method, name), {})}
    return [tiny_spec(method, "tiny-double", **usual | {name: value}) for value in VALUES[name]]


def require_equal(ours, theirs):
    assert torch.equal(ours, theirs)


def weights(state, name=""):
    if name == "average":  # of which what is trained does not depend
        return state["averaged"]
    return state["columns"][-1] if "columns" in state else state["parameters"]


@pytest.mark.numerical
@pytest.mark.parametrize(("method", "name"), EVERY)
def test_a_run_is_the_same_alone_or_stacked_with_other_values(method, name):
    specs = specs_of(method, name)
    together, (state,) = run_whole(specs, SEEDS)
    for index, (spec, seed) in enumerate(zip(specs, SEEDS, strict=True)):
        (alone,), (own,) = run_whole(spec, [seed])
        for part in ("seed", "accuracy", "curve"):
            assert together[index][part] == alone[part]
        torch.testing.assert_close(weights(state, name)[index], weights(own, name)[0])
        if "bank" in state:  # what is remembered was chosen by the seed alone
            for column, part in state["bank"]["table"].items():
                same = torch.testing.assert_close if column == "logits" else require_equal
                same(part[index], own["bank"]["table"][column][0])
    first, _, last = weights(state, name)
    assert not torch.allclose(first, last, rtol=1e-2)  # it does matter


@pytest.mark.numerical
@pytest.mark.parametrize("method", ["mega-ii", "prog-nn", "rwalk", "gem"])
def test_networks_with_batch_norm_stack_with_other_values(method):
    world, sizes = "tiny-images-double", {"tasks": 2, "examples": 10}
    specs = [tiny_spec(method, world, learning_rate=rate, **sizes) for rate in (2e-3, 1e-3)]
    _, (state,) = run_whole(specs, [0, 1])
    for index in range(2):
        _, (own,) = run_whole(specs[index], [index])
        torch.testing.assert_close(weights(state)[index], weights(own)[0])


def test_all_that_is_searched_can_be_stacked():
    for method in names():
        entry = method_entry(method)
        assert set(entry.search) <= {*entry.varies, *BY_THEMSELVES.get(method, ())}, method


@pytest.mark.numerical
def test_equal_values_are_the_very_run_of_one_spec():
    spec = tiny_spec("mega-i")
    assert same_bits(run_whole([spec, tiny_spec("mega-i")], [0, 1]), run_whole(spec, [0, 1]))


@pytest.mark.numerical
def test_a_stack_that_was_stopped_ends_with_the_same_bits(tmp_path):
    specs = specs_of("mega-i", "epsilon")
    with pytest.raises(Killed):
        run(specs, SEEDS, checkpoint=checkpoint(tmp_path, Dying, lives=5))
    other = [*specs[:2], specs[1]]
    with pytest.raises(EngramError, match=r"is of another run: its epsilon is 5.0, not 0.0\."):
        run(other, SEEDS, checkpoint=checkpoint(tmp_path))
    gone_on = run_whole(specs, SEEDS, checkpoint=checkpoint(tmp_path, every=1e9))
    assert same_bits(gone_on, run_whole(specs, SEEDS))


@pytest.mark.numerical
def test_one_that_diverges_leaves_the_others_alone_and_tells_its_own_rate():
    calm, wild = (tiny_spec("van", "tiny-double", learning_rate=rate) for rate in (0.5, 1e300))
    left, failed, right = run([calm, wild, calm], [0, 0, 1])
    assert "(learning_rate 1e+300)" in failed.failure
    strong = [tiny_spec("ewc", learning_rate=1e30, strength=strength) for strength in (1, 2)]
    for strength, outcome in zip((1, 2), run(strong, [0, 0]), strict=True):
        assert f"(learning_rate 1e+30, strength {strength})" in outcome.failure
    alone = run(calm, [0, 1])
    assert [left.accuracy, right.accuracy] == [outcome.accuracy for outcome in alone]
    assert left.failure is right.failure is None


@pytest.mark.numerical
def test_the_steps_of_each_are_told_by_its_own_rule():
    specs = specs_of("mega-i", "epsilon")
    together = run(specs, SEEDS, record_every=1)
    for spec, seed, mine in zip(specs, SEEDS, together, strict=True):
        (alone,) = run(spec, [seed], record_every=1)
        assert alone.facts["mixing_percent"] == mine.facts["mixing_percent"]
        np.testing.assert_allclose(  # which records have in float32
            mine.steps["reference_weight"], alone.steps["reference_weight"], rtol=1e-6
        )
    assert len({mine.facts["mixing_percent"] for mine in together}) > 1


def test_what_cannot_be_one_stack_is_refused():
    spec = tiny_spec("mega-i")
    with pytest.raises(EngramError, match=r"memory_per_class must be the same in all runs"):
        run([spec, tiny_spec("mega-i", memory_per_class=3)], [0, 1])
    with pytest.raises(EngramError, match=r"which may differ in learning_rate, epsilon\."):
        run([spec, tiny_spec("mega-i", tasks=2)], [0, 1])
    with pytest.raises(EngramError, match=r"^method must be the same"):
        run([spec, tiny_spec("er")], [0, 1])
    for specs in ([spec], []):
        with pytest.raises(EngramError, match=r"one for each of the 2 seeds, not \d specs\."):
            run(specs, [0, 1])
    for specs in (None, "van", ["van", "van"], [spec, None]):
        with pytest.raises(EngramError, match=r"^spec must be a Spec, or a list of them, not "):
            run(specs, [0, 1])
    for seeds in ([], 5, None, iter([0]), [-1], ["0"]):
        with pytest.raises(EngramError, match=r"^seeds must be whole numbers of at least 0"):
            run(spec, seeds)


def test_the_key_of_a_stack_has_all_but_what_may_differ():
    spec = tiny_spec("mega-i")
    alike = [tiny_spec("mega-i", epsilon=1.0), tiny_spec("mega-i", learning_rate=0.1)]
    assert {stack_key(each) for each in alike} == {stack_key(spec)}
    others = [
        tiny_spec("er"),
        tiny_spec("mega-i", tasks=2),
        tiny_spec("mega-i", examples=20),
        tiny_spec("mega-i", batch_size=3),
        tiny_spec("mega-i", benchmark="tiny-images"),
        specify("permuted-mnist", "mega-i", split="tuning"),
        specify("permuted-mnist", "mega-i", split="tuning", passes=2),
        specify("permuted-mnist", "mega-i", split="tuning", overrides={"curve_images": "10"}),
    ]
    assert len({stack_key(spec), *map(stack_key, others)}) == 1 + len(others)


@pytest.mark.usefixtures("double_mnist")
def test_a_search_that_trains_as_one_finds_what_trials_alone_find(
    tmp_path, monkeypatch, engram, few_mnist
):
    def execute_here(units, store, train, *, command, **_):
        for unit in units:
            made = zip(unit.specs, train(unit.specs, unit.seeds), strict=True)
            store.add([record(spec, outcome, command) for spec, outcome in made])
        return 0

    few_mnist(200)
    monkeypatch.setattr("engram.app.runs.execute", execute_here)
    options = {"seeds": 2, "tasks": 1, "examples": 100, "settings": ("curve_images=10",)}
    options |= {"device": "cpu", "json": True}
    found, choices = [], []
    for most in (1, 64):
        monkeypatch.setattr(protocol, "stacking", lambda *_, most=most: (most, ""))
        path = tmp_path / f"{most}.sqlite"
        code, out, _ = engram("tune", "permuted-mnist", "van", store=path, **options)
        assert code == 0
        choices.append(json.loads(out))
        with Store(path, read_only=True) as store:
            found.append({row.address: row.outcome for row in store.rows()})
    alone, together = found
    assert alone.keys() == together.keys()
    assert {each["facts"]["stacked"] for each in alone.values()} == {1}
    assert {each["facts"]["stacked"] for each in together.values()} == {16}
    for address, outcome in alone.items():
        assert outcome["accuracy"] == together[address]["accuracy"]
    assert choices[0]["chosen"] == choices[1]["chosen"]


@pytest.mark.parametrize(
    ("benchmark", "method", "more", "device", "most"),
    [
        ("permuted-mnist", "van", {}, "cpu", 1),
        ("permuted-mnist", "van", {}, "cuda", 45),
        ("permuted-mnist", "van", {"examples": 600}, "cuda", 64),
        ("permuted-mnist", "van", {"split": "tuning", "passes": 10}, "cuda:1", 4),
        ("permuted-mnist", "van", {"split": "tuning", "passes": 100, "examples": 100}, "cuda", 64),
        ("split-cifar", "van", {}, "cuda", 5),
        ("split-cub", "van", {}, "cuda", 1),
    ],
)
def test_one_function_says_how_many_stack_and_why(benchmark, method, more, device, most):
    found, why = stacking(specify(benchmark, method, **more), device)
    assert found == most
    assert ("GPU" in why) == (most > 1)


class Deaf(method_entry("van").build):
    """Lets runs differ in a learning rate, and goes by the first one's."""

    def observe(self, step, stored, batch):
        self.learning_rate = self.settings.learning_rate
        return super().observe(step, stored, batch)


def test_the_conformance_kit_finds_a_method_that_takes_one_value_for_all():
    with pytest.raises(AssertionError, match=r"^mine gives a run with learning_rate 0\.01 another"):
        check_method(Entry("mine", Deaf, MethodSettings, varies=("learning_rate",)))
    for name in ("batch_size", "rate"):
        with pytest.raises(AssertionError, match=f"'{name}', which is no setting that is a number"):
            check_method(Entry("mine", Deaf, MethodSettings, varies=(name,)))


def test_a_setting_is_a_number_where_all_runs_have_the_same():
    each = [MethodSettings(learning_rate=rate) for rate in (0.5, 0.5, 0.25)]
    setup = Setup(None, torch.zeros(3, 2), (0, 1, 2), None, each[:2])
    assert setup.number(each[0], "learning_rate") == 0.5
    found = setup._replace(each=each).number(each[0], "learning_rate")
    assert torch.equal(found, torch.tensor([[0.5], [0.5], [0.25]]))


@dataclass(frozen=True)
class WarmSettings(MethodSettings):
    """Settings with one that has no smaller value, and one called like a field of a spec."""

    temperature: float = setting(1.0, "what outputs are divided by", least=1)
    tasks: int = setting(2, "nothing", least=1)


def warm(setup, settings):
    method = method_entry("van").build(setup, settings)
    method.learning_rate = method.learning_rate / setup.number(settings, "temperature")
    return method


def test_the_kit_keeps_to_the_bounds_of_a_setting():
    assert "varied" in check_method(Entry("mine", warm, WarmSettings, varies=("temperature",)))


@pytest.mark.parametrize(("method", "name"), [each for each in EVERY if each not in OPTIONS])
def test_the_kit_finds_a_value_that_makes_a_difference(method, name, monkeypatch):
    compared = []
    monkeypatch.setattr(checks, "_compare_stacked", lambda _, name, __: compared.append(name))
    entry = method_entry(method)
    subject = Subject(replace(entry, varies=(name,)), small(entry))
    with torch.no_grad():
        checks.varied(subject)
    assert compared == [name]


def small(entry):
    sizes = {"batch_size": 4, "refresh_interval": 2, "memory_per_class": 2, "reference_batch": 3}
    known = {item.name for item in fields(entry.settings)}
    return entry.settings(**{name: value for name, value in sizes.items() if name in known})


def test_a_setting_called_like_a_field_of_a_spec_is_no_field_of_it(monkeypatch):
    monkeypatch.setattr(registry.METHODS, "_held", dict(registry.METHODS._held))
    registry.register(Entry("warm", warm, WarmSettings))
    one, other = (tiny_spec("warm", tasks=tasks) for tasks in (2, 3))
    one, other = (replace(each, settings={**each.settings, "tasks": 2}) for each in (one, other))
    assert stack_key(one) != stack_key(other)


def test_a_rule_without_equality_is_one_for_seeds_of_one_spec():
    each = [MethodSettings()] * 3
    setup = Setup(None, torch.zeros(3, 2), (0, 1, 2), None, each)
    assert isinstance(setup.rule(each[0], lambda _: Bare()), Bare)


class Bare(Rule):
    needs_gram, reference = False, "none"

    def weigh(self, losses, gram):  # noqa: ARG002
        return torch.ones_like(losses)
