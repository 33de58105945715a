"""A learner learns from a batch, or refuses it and has learnt nothing."""

import math

import torch
from fuzz_cases import attempt, generated, refused
from fuzz_junk import junk, maybe, mostly
from hypothesis import strategies as st

from engram import Learner
from engram.memory import ClassRing, Fifo, Memory, Reservoir
from engram.rules import AGEM, GEM, MEGA1, MEGA2, Current, Equal

RULES = [AGEM(), GEM(), MEGA1(), MEGA2(), Current(), Equal()]
POLICIES = [Reservoir(4), Fifo(3), ClassRing(2), ClassRing(2, include_current=True)]


def _batch(kind, size):
    inputs, classes = torch.linspace(0, 1, 3 * size).view(size, 3), torch.arange(size) % 3
    return {
        "good": (inputs, classes),
        "classes out of range": (inputs, classes + 2),
        "negative classes": (inputs, classes - 2),
        "classes of another type": (inputs, classes * 1.5),
        "truths": (inputs, classes > 0),
        "classes in a column": (inputs, classes[:, None]),
        "NaN": (inputs * math.nan, classes),
        "8 bits": (inputs, classes.to(torch.uint8)),
        "no classes": (inputs,),
        "one short": (inputs, classes[1:]),
        "a dict": ({"x": inputs, "y": classes},),
        "numbers": (3, 4),
        "nothing": (),
        "sparse": (inputs.to_sparse(), classes),
        "nowhere": (inputs.to("meta"), classes),
    }[kind]


kinds = ["good"] * 4 + ["classes out of range", "negative classes", "classes of another type"]
kinds += ["truths", "classes in a column", "NaN", "8 bits", "no classes", "one short", "a dict"]
kinds += ["numbers", "nothing", "sparse", "nowhere"]
batches = st.builds(_batch, st.sampled_from(kinds), st.sampled_from([0, 1, 2, 4]))
options = maybe(
    task=mostly(st.integers(0, 2)),
    labels=mostly(st.just([0, 1])),
    ids=mostly(st.just(["a", "b"])),
    tags=mostly(st.just({"source": "x"})),
)


def _known(learner):
    weights = [parameter.tolist() for parameter in learner.model.parameters()]
    return str(weights), [*learner.memory.examples()]


def _learner(rule, policy):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 3)
    return Learner(model, torch.optim.SGD(model.parameters(), lr=0.1), rule, Memory(policy))


@generated(
    200,
    rule=st.sampled_from(RULES),
    policy=st.sampled_from(POLICIES),
    steps=st.lists(st.tuples(batches, options), min_size=1, max_size=4),
)
def test_a_batch_is_learnt_and_offered_or_refused_and_neither(rule, policy, steps):
    learner = _learner(rule, policy)
    for batch, given_ in steps:
        before = _known(learner)
        mix = attempt(lambda batch=batch, given_=given_: learner.observe(*batch, **given_))
        if refused(mix):
            assert _known(learner) == before
        else:
            assert torch.isfinite(mix.losses).all()
            assert torch.isfinite(mix.weights).all()
        attempt(learner.end_task)


@generated(
    150,
    parts=st.tuples(*[mostly(st.none())] * 5),
    size=mostly(st.integers(1, 5)),
    state=junk,
)
def test_only_what_can_learn_is_made_a_learner(parts, size, state):
    good = _learner(AGEM(), Reservoir(4))
    usual = (good.model, good.optimizer, good.rule, good.memory, None)
    model, optimizer, rule, memory, loss = (
        mine if part is None else part for part, mine in zip(parts, usual, strict=True)
    )
    own = {} if loss is None else {"loss": loss}
    made = attempt(lambda: Learner(model, optimizer, rule, memory, reference_batch=size, **own))
    if not refused(made):
        assert callable(made.model) or own
    assert refused(attempt(lambda: good.load_state_dict(state)))
    held = {"model": state, "optimizer": state, "memory": state}
    assert refused(attempt(lambda: good.load_state_dict(held)))
