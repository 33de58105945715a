"""Checkpoints of the version before are read: its names of a method's state, and its lists."""

import pytest
from dying_checkpoints import Dying, Killed, checkpoint
from tiny_worlds import run_whole, same_bits, tiny_spec

EXEMPLARS = ("inputs", "outputs", "tasks", "labels", "ranks")


def penalty(state):
    """Call a penalty's tensors what they were called."""
    names = {"penalty_weight": "pull", "path_integral": "fall"}
    return {names.get(name, name): value for name, value in state.items()}


def replay(state):
    """List the columns of what is held, which had no names."""
    return {**state, "bank": {**state["bank"], "table": listed(state["bank"]["table"])}}


def reservoir(state):
    return {**state, "memory": {**state["memory"], "table": listed(state["memory"]["table"])}}


def exemplars(state):
    held = state["exemplars"]
    return {**state, "exemplars": held and tuple(held[name] for name in EXEMPLARS)}


def listed(columns):
    return columns and [columns["inputs"], columns["labels"]]


class Older(Dying):
    """Saves a run as the version before did."""

    older = staticmethod(dict)

    def save(self, run, state, where):
        super().save(run, {**state, "method": self.older(state["method"])}, where)


@pytest.mark.parametrize(
    ("method", "older"),
    [
        ("ewc", penalty),
        ("pi", penalty),
        ("rwalk", penalty),
        ("mega-ii", replay),
        ("gem", replay),
        ("mer", reservoir),
        ("icarl", exemplars),
    ],
)
@pytest.mark.parametrize("lives", [3, 9, 14])  # in the first task, the second and the third
def test_a_run_that_the_version_before_saved_goes_on(method, older, lives, tmp_path, monkeypatch):
    monkeypatch.setattr(Older, "older", staticmethod(older))
    spec = tiny_spec(method)
    with pytest.raises(Killed):
        run_whole(spec, [0, 1], checkpoint=checkpoint(tmp_path, Older, lives=lives))
    resumed = run_whole(spec, [0, 1], checkpoint=checkpoint(tmp_path, every=1e9))
    assert same_bits(resumed, run_whole(spec, [0, 1]))
