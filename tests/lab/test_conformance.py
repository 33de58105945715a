"""The conformance kit: every method passes it, and every broken promise is found."""

import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from faulty_methods import FAULTS, CountingOpenly, Insatiable, MemorySettings, Plain

from engram.errors import EngramError
from engram.lab.methods import Entry, MethodSettings, names
from engram.lab.methods import registry as register_of_methods
from engram.testing import check_method, no_reads

# Settings with which the kit's short tasks reach everything: windows end, memories are full.
SMALL = {
    "refresh_interval": 2,
    "memory_per_class": 2,
    "reference_batch": 3,
    "memory_size": 12,
    "draws": 2,
    "batches": 2,
    "epochs": 2,
    "memory_batch": 4,
}
OPTIONS = [
    ("ewc", {"formula": "kirkpatrick"}),
    ("pi", {"formula": "zenke"}),
    ("mas", {"formula": "aljundi"}),
    ("rwalk", {"formula": "chaudhry"}),
    ("mer", {"algorithm": "batches"}),
    ("icarl", {"task_ids": False}),
    ("mega-i", {"test": "reference"}),
    *(("gem", {"memory": memory}) for memory in ("sample", "reservoir")),
    ("gem", {"memory": "fifo", "sampled": True}),
    ("er", {"optimizer": "adam"}),
    ("er-ace", {"memory": "reservoir"}),
    ("derpp", {"memory": "ring"}),
    ("recommended", {"updates": 3, "masked": True, "rule": "mega-ii", "memory": "ring"}),
    ("recommended", {"alpha": 0.0, "average": 0.0, "rule": "mega-i"}),
    ("recommended", {"average": 1.0, "optimizer": "adam"}),
    *(("mega-ii", {"memory": memory}) for memory in ("sample", "reservoir", "fifo")),
]
EVERY = ["settings", "corners", "seeded", "predictions", "stacked", "one pass", "resumed", "budget"]
CAPTURED = {
    *("van", "er", "a-gem", "mega-i", "mega-ii", "recommended", "ewc", "pi", "mas", "rwalk"),
}  # at least


def small_settings(name):
    fields = register_of_methods.method_entry(name).settings.__dataclass_fields__
    return {key: value for key, value in SMALL.items() if key in fields}


@pytest.mark.numerical
@pytest.mark.parametrize("name", names())
def test_every_registered_method_conforms(name):
    done = check_method(name, **small_settings(name))
    assert [check for check in done if check not in ("varied", "settled", "captured")] == EVERY
    assert "varied" in done
    assert "captured" in done or name not in CAPTURED
    assert ("settled" in done) == (name == "prog-nn")


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_every_option_conforms(name, options):
    check_method(name, **small_settings(name) | options)


@pytest.mark.parametrize(("method", "sentence"), FAULTS)
def test_a_broken_promise_is_named(method, sentence):
    with pytest.raises(AssertionError, match=sentence) as caught:
        check_method(Entry("mine", method, MethodSettings))
    assert str(caught.value).startswith("mine ")
    assert "\n" not in str(caught.value)


def test_a_user_s_own_entry_passes_without_being_registered():
    assert check_method(Entry("mine", Plain, MethodSettings)) == EVERY
    assert check_method(Entry("mine", CountingOpenly, MethodSettings)) == [*EVERY, "captured"]


def test_a_memory_over_its_budget_is_found():
    with pytest.raises(AssertionError, match="bytes, and its settings allow"):
        check_method(Entry("mine", Insatiable, MemorySettings))
    check_method(Entry("mine", Insatiable, MemorySettings), memory_size=100)


@pytest.mark.parametrize("presets", [{"somewhere": {"rate": 1}}, {"somewhere": {"batch_size": 0}}])
def test_presets_that_the_settings_refuse_are_found(presets):
    with pytest.raises(AssertionError, match="a preset or a tuning grid that its settings refuse"):
        check_method(Entry("mine", Plain, MethodSettings, presets))


@pytest.mark.parametrize(
    "read",
    [
        lambda x: float(x[0, 0]),
        lambda x: bool((x > 0).all()),
        lambda x: x.tolist(),
        lambda x: x.numpy(),
        lambda x: np.asarray(x),
        lambda x: x.cpu(),
        lambda x: x.to("cpu"),
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: torch.equal(x, x),
        lambda x: x.unique(),
        lambda x: range(5)[x[0].long()],
    ],
)
def test_every_way_to_read_from_the_device_is_seen(read):
    with pytest.raises(AssertionError, match="reads from the device"), no_reads("cpu"):
        read(torch.ones(2, 1))


def test_arithmetic_and_indices_that_stay_on_the_device_are_let_through():
    x, places = torch.ones(2, 3), torch.tensor([1, 0])
    with no_reads("cpu"):
        x[places].where(x > 0, 0).to(torch.float64).index_add_(0, places, x.double())
        x.masked_fill_(x > 0, 2.0)
        x[:, 0] = 0


def test_the_global_random_state_is_left_as_it_was():
    torch.manual_seed(5)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    check_method("van")
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()
    assert random.getstate() == before[2]


def test_the_page_for_users_shows_a_method_that_conforms(monkeypatch, capsys, few_mnist):
    held = register_of_methods.METHODS._held
    monkeypatch.setattr(register_of_methods.METHODS, "_held", dict(held))
    few_mnist(200)
    page = Path(__file__).parents[2] / "docs" / "methods" / "writing-a-method.md"
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    namespace = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, str(page), "exec"), namespace)
    assert len(blocks[0].splitlines()) < 40
    assert str([*EVERY, "captured"]) in capsys.readouterr().out
    assert len(namespace["outcome"].accuracy) == 3


@pytest.mark.parametrize("mistake", [3, Plain])
def test_what_is_no_method_is_refused(mistake):
    with pytest.raises(EngramError, match="method must be the name of one, or its Entry, not "):
        check_method(mistake)
