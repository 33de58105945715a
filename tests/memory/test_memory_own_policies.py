"""A policy of one's own is saved and loaded like ours, by what is imported and nothing else."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest
import torch
from safetensors import safe_open

from engram.errors import EngramError
from engram.memory import ClassRing, Fifo, Ledger, Memory, Policy, Reservoir


class Mine(Reservoir):
    """Another name for the same policy."""


@dataclass(frozen=True)
class Named(ClassRing):
    """With a field of its own."""

    note: str = "nothing"


@dataclass(frozen=True)
class Whole(Policy):
    """Not one of ours at all: the last few of each class, sampled at once."""

    few: int
    by_class = True
    uniform = False
    include_current = True

    @property
    def group_limit(self):
        return self.few


POLICIES = [Mine(5), Named(2, note="spring", include_current=True), Whole(2)]


def filled(policy):
    memory = Memory(policy, seed=3)
    memory.add((torch.arange(20.0), torch.arange(20) % 3), tasks=0)
    return memory


def document(path):
    with safe_open(path, framework="pt") as file:
        return json.loads(file.metadata()["document"])["ledger"]["policy"]


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_it_is_saved_under_its_whole_name_and_goes_on_bit_for_bit(policy, tmp_path):
    memory = filled(policy)
    memory.save(tmp_path / "memory")
    assert document(tmp_path / "memory")["name"] == f"{__name__}.{type(policy).__name__}"
    by_state = Memory(policy)
    by_state.load_state_dict(memory.state_dict())
    for other in (Memory.load(tmp_path / "memory"), by_state):
        assert other.policy == policy
        assert type(other.policy) is type(policy)
        for own in (twin := filled(policy), other):
            own.add((torch.arange(9.0), torch.arange(9) % 3), tasks=1)
        assert [*other.examples()] == [*twin.examples()]
        assert other.sample(3).ids == twin.sample(3).ids


def test_ours_are_saved_under_the_names_that_they_always_had(tmp_path):
    filled(Reservoir(3)).save(tmp_path / "memory")
    assert document(tmp_path / "memory") == {"name": "Reservoir", "capacity": 3}


def test_of_two_classes_of_one_name_the_later_is_taken(tmp_path):
    """As where a cell of a notebook is run again."""

    def define():
        class Again(Fifo):
            pass

        return Again

    first, second = define(), define()
    filled(first(3)).save(tmp_path / "memory")
    assert type(Memory.load(tmp_path / "memory").policy) is second


def test_a_policy_that_is_not_imported_is_asked_for_by_name(tmp_path):
    def save():
        class Gone(Fifo):
            pass

        filled(Gone(3)).save(tmp_path / "memory")
        return f"{__name__}.{Gone.__qualname__}"

    name = save()
    gc.collect()
    with pytest.raises(EngramError) as caught:
        Memory.load(tmp_path / "memory")
    assert str(caught.value) == (
        f"The memory's policy is {name}, which is none of Engram's and not imported; import the "
        "module that defines it, then load the memory."
    )


def test_no_module_is_imported_because_a_file_names_it(tmp_path):
    (tmp_path / "plugin.py").write_text(
        "from engram.memory import Fifo\nprint('imported')\nclass Theirs(Fifo): pass\n"
    )
    save = "m = Memory(plugin.Theirs(3)); m.add(torch.arange(2.0)); m.save('memory')"
    load = "print(Memory.load('memory').policy)"

    def run(code):
        command = [sys.executable, "-c", f"import torch\nfrom engram.memory import Memory\n{code}"]
        paths = os.pathsep.join([str(tmp_path), *sys.path])
        environment = {**os.environ, "PYTHONPATH": paths}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    assert run(f"import plugin\n{save}").stdout == "imported\n"
    alone = run(load)
    assert "imported" not in alone.stdout
    assert "The memory's policy is plugin.Theirs, which is none of Engram's" in alone.stderr
    assert run(f"import plugin\n{load}").stdout == "imported\nTheirs(capacity=3)\n"


class Unsaid(Reservoir):
    def __init__(self):
        super().__init__(capacity=5)


@dataclass(frozen=True)
class Odd(Reservoir):
    rule: object = len


@dataclass(frozen=True)
class Nowhere(Reservoir):
    by: float = float("nan")


class Plain(Policy):
    by_class = uniform = include_current = False
    group_limit = 3


@pytest.mark.parametrize("policy", [Unsaid(), Odd(3), Nowhere(3), Plain()], ids=lambda p: type(p))
def test_a_policy_that_could_not_be_loaded_again_is_refused_before_anything_is_kept(policy):
    for make in (Memory, Ledger):
        with pytest.raises(EngramError, match=r"could not be loaded again.*frozen dataclass"):
            make(policy)


def test_a_state_of_another_policy_is_refused_by_name():
    with pytest.raises(
        EngramError, match=r"The state is of .*\.Mine\(capacity=5\); .*Reservoir\(c"
    ):
        Memory(Reservoir(5)).load_state_dict(filled(Mine(5)).state_dict())
    with pytest.raises(EngramError, match=r"The state is of Reservoir\(capacity=5\); .*Mine\(c"):
        Memory(Mine(5)).load_state_dict(filled(Reservoir(5)).state_dict())


@pytest.mark.parametrize(
    "name",
    ["Policy", "_Pooled", "engram.memory.policies.Policy", "engram.memory.policies._Pooled"],
)
def test_what_is_the_base_of_policies_is_none(name):
    state = filled(Reservoir(5)).state_dict()
    state["ledger"]["policy"]["name"] = name
    memory = Memory(Reservoir(5))
    with pytest.raises(EngramError):
        memory.load_state_dict(state)


def test_the_base_of_policies_cannot_be_one():
    with pytest.raises(TypeError):
        Policy()
    with pytest.raises(EngramError, match="give one such as Reservoir"):
        Memory(Reservoir)
