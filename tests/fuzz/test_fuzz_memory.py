"""A memory under anything that is thrown at it: kept within its bounds, or left as it was."""

import functools

import torch
from fuzz_cases import attempt, generated, refused
from fuzz_junk import junk, maybe, mostly
from hypothesis import strategies as st

from engram.memory import ClassRing, ClassSample, Fifo, IndexStorage, Memory, Reservoir
from engram.memory import TensorStorage as Tensors

POLICIES = [Reservoir, Fifo, ClassRing, ClassSample]
DATA = (torch.arange(10.0).view(5, 2), torch.arange(5) % 2)

DTYPES = [torch.uint8, torch.bool, torch.uint16, torch.uint64, torch.complex64, torch.complex128]
DTYPES += [torch.float16, torch.float8_e4m3fn]

sizes = st.sampled_from([0, 1, 2, 3])


def _batch(shape, dtype, structure, size):
    made = torch.ones(size, *shape).to(dtype)
    labels = torch.arange(size) % 3
    return {
        "tuple": (made, labels),
        "dict": {"x": made, "y": labels},
        "nested": [made, (made, {"a": labels})],
        "tensor": made,
        "indices": labels,
        "uneven": (made, torch.arange(size + 1)),
        "named by numbers": {1: made},
        "nothing": (),
        "wrong": (made, "x"),
        "not finite": (torch.full_like(made.float(), torch.nan).to(dtype), labels)
        if dtype.is_floating_point
        else made,
    }[structure]


batches = mostly(
    st.builds(
        _batch,
        st.sampled_from([(2,), (2,), (2,), (), (3,), (2, 2)]),
        st.sampled_from([torch.float32] * 4 + DTYPES),
        st.sampled_from(
            ["tuple"] * 6
            + ["dict", "nested", "tensor", "indices", "uneven", "named by numbers"]
            + ["nothing", "wrong", "not finite"]
        ),
        sizes,
    )
)
ids = mostly(st.lists(st.integers(0, 5) | st.sampled_from(["a", "b\n", "\ud800"]), max_size=3))
tags = mostly(st.dictionaries(st.sampled_from("ab"), mostly(st.integers(0, 2)), max_size=2))
added = st.tuples(
    st.just("add"),
    st.fixed_dictionaries(
        {"batch": batches},
        optional={
            "tasks": mostly(st.integers(0, 2), st.lists(st.integers(0, 2), max_size=3)),
            "labels": mostly(st.lists(st.integers(0, 2), max_size=3)),
            "ids": ids,
            "tags": tags | st.lists(tags, max_size=2),
        },
    ),
)
where = mostly(
    st.fixed_dictionaries({"task": mostly(st.integers(0, 2))}),
    st.fixed_dictionaries({"tags": tags}),
    st.just(lambda example: example.label == 1),
)
erased = st.tuples(st.just("erase"), maybe(ids=ids, where=where, reason=mostly(st.just("why"))))
sampled = st.tuples(st.just("sample"), st.fixed_dictionaries({"count": mostly(st.integers(0, 4))}))
slots = mostly(st.lists(st.integers(-1, 4), max_size=2))
read = st.tuples(st.just("read"), st.fixed_dictionaries({"slots": slots}))
ended = st.tuples(st.just("end_task"), st.just({}))
operations = st.lists(added | added | added | erased | sampled | read | ended, max_size=5)


def _known(memory):
    return [*memory.examples()], len(memory), [*memory.erasures]


@generated(
    500,
    policy=st.sampled_from(POLICIES),
    indices=st.booleans(),
    budget=maybe(max_examples=st.integers(1, 4), max_bytes=st.integers(1, 60)),
    operations=operations,
)
def test_a_memory_keeps_its_bounds_and_a_refused_call_changes_nothing(
    policy, indices, budget, operations
):
    memory = Memory(policy(3), IndexStorage(DATA) if indices else None, **budget)
    for name, options in operations:
        before = _known(memory)
        outcome = attempt(functools.partial(getattr(memory, name), **options))
        if refused(outcome) or name in ("sample", "read"):
            assert _known(memory) == before
        assert memory.available <= len(memory) <= budget.get("max_examples", 12)
        assert memory.nbytes <= budget.get("max_bytes", 2**20)
        gone = {each for record in memory.erasures for each in record.ids}
        assert not gone & {example.id for example in memory.examples()}


@generated(
    400,
    kind=st.sampled_from(POLICIES),
    size=mostly(st.integers(1, 5)),
    flag=maybe(include_current=mostly(st.booleans())),
    options=maybe(
        max_examples=mostly(st.integers(1, 5)),
        max_bytes=mostly(st.integers(1, 500)),
        seed=mostly(st.integers(0, 5)),
    ),
    storage=mostly(st.none()),
    device=mostly(st.sampled_from(["cpu", "cuda:99", "meta", "nowhere", "\n"])),
)
def test_only_possible_memories_are_made(kind, size, flag, options, storage, device):
    flag = flag if kind in (ClassRing, ClassSample) else {}
    policy = attempt(lambda: kind(size, **flag))
    memory = attempt(lambda: Memory(policy, storage, **options))
    if not refused(memory):
        attempt(lambda: memory.add(DATA, tasks=0))
    attempt(lambda: Memory(Reservoir(2), Tensors(device)).add(DATA))
    attempt(lambda: Memory(Reservoir(2), IndexStorage(storage)))


@generated(300, policy=junk, state=junk)
def test_what_is_no_policy_and_no_state_is_refused(policy, state):
    assert refused(attempt(lambda: Memory(policy)))
    assert refused(attempt(lambda: Memory(Reservoir(2)).load_state_dict(state)))
