"""A memory that is resized, mapped, blocked and weighted by anything: whole, or as it was."""

import functools

import torch
from fuzz_cases import attempt, generated, refused
from fuzz_junk import junk, maybe, mostly
from hypothesis import strategies as st

from engram.memory import (
    ClassRing,
    ClassSample,
    Fifo,
    IndexStorage,
    MappedStorage,
    Memory,
    Ragged,
    Reservoir,
)

things = junk.filter(lambda thing: not callable(thing))  # a function's own errors are its user's

sizes = st.sampled_from([1, 2, 3])
weights = mostly(
    st.lists(st.sampled_from([1, 0.5, 5e-324, 1e308, 3]), min_size=2, max_size=2),
    st.lists(st.sampled_from([1, 0, -1, float("nan"), float("inf")]), max_size=3),
)
times = mostly(
    st.sampled_from([0.0, 5, -1e308, 1e308, float("nan")]), st.lists(st.floats(), max_size=3)
)
tags = mostly(st.dictionaries(st.sampled_from("ab"), mostly(st.integers(0, 1)), max_size=2))


def _rows(ragged, size):
    labels = torch.arange(size) % 2
    if not ragged:
        return torch.arange(float(size)).view(size, 1), labels
    return Ragged([torch.arange(float(each + 1)) for each in range(size)]), labels


batches = mostly(st.builds(_rows, st.booleans(), sizes))
policies = mostly(
    st.integers(1, 5) | st.just(2**60),  # for which there is no room
    st.builds(Fifo, sizes),
    st.builds(Reservoir, sizes),
    st.builds(ClassRing, sizes, include_current=st.booleans()),
    st.builds(ClassSample, sizes, include_current=st.booleans()),
)


def _parts(batch):
    """Return the two columns of a batch, whatever it was mapped to."""
    inputs, labels = batch.values() if isinstance(batch, dict) else batch
    return inputs, labels if labels.dim() == 1 else labels[:, 0]


def _named(batch):
    inputs, labels = _parts(batch)
    return {"a": inputs, "b": torch.stack([labels] * 2, 1)}


def _padded(batch):
    inputs, labels = _parts(batch)
    return (inputs.padded() if isinstance(inputs, Ragged) else inputs.repeat(1, 4)), labels


def _as_ragged(batch):
    _, labels = _parts(batch)
    return Ragged([torch.ones(1 + label) for label in labels.tolist()]), labels


MAPS = [
    _named,
    _padded,
    _as_ragged,
    lambda batch: batch,
    lambda batch: (_parts(batch)[1][1:],),
    lambda batch: (_parts(batch)[1] / 0,),
    lambda _: "text",
    lambda _: None,
]


def _op(name, **options):
    return st.tuples(st.just(name), maybe(**options))


operations = st.lists(
    st.one_of(
        *[
            st.tuples(
                st.just("add"),
                st.fixed_dictionaries(
                    {"batch": batches, "tasks": mostly(st.integers(0, 3))},
                    optional={"weights": weights, "times": times, "tags": tags},
                ),
            )
        ]
        * 4,
        _op(
            "resize",
            policy=policies,
            max_examples=mostly(st.integers(1, 4), st.none()),
            max_bytes=mostly(st.integers(1, 80), st.none()),
        ),
        st.tuples(
            st.just("map"),
            st.fixed_dictionaries(
                {"function": st.sampled_from(MAPS * 3) | things}, optional={"batch": mostly(sizes)}
            ),
        ),
        st.tuples(
            st.sampled_from(["block", "block", "unblock"]), st.fixed_dictionaries({"tags": tags})
        ),
        st.tuples(
            st.just("erase"),
            st.fixed_dictionaries(
                {
                    "where": mostly(st.builds(lambda own: {"tags": own}, tags)).filter(
                        lambda where: not callable(where)
                    )
                },
                optional={"block": mostly(st.booleans()), "reason": mostly(st.just("why"))},
            ),
        ),
        st.tuples(
            st.just("sample"),
            st.fixed_dictionaries(
                {"count": mostly(st.integers(0, 4))},
                optional={
                    "stratify": mostly(st.sampled_from(["class", "task"])),
                    "weighted": mostly(st.booleans()),
                    "by_task": st.booleans(),
                    "collate": st.sampled_from([list, len]) | things,
                },
            ),
        ),
    ),
    min_size=2,
    max_size=7,
)
held = [
    {"batch": (torch.tensor([[1.0], [2.0]]), torch.arange(2)), "tags": [{"a": 0}, {"b": 1}]},
    {"batch": (Ragged([torch.ones(2), torch.ones(1)]), torch.arange(2)), "tags": [{"a": 1}, None]},
]


def _rows_of(storage):
    return storage and {path.name for path in storage.folder.glob("rows-*")}


def _known(memory):
    state = memory.state_dict()
    rows = {place: rows.tolist() for place, rows in state["storage"]["rows"].items()}
    return [
        [*memory.examples()],
        [*memory.erasures],
        memory.blocks,
        memory.policy,
        memory.max_bytes,
        rows if len(memory) else {},  # one that holds nothing may take up another kind of columns
    ]


@generated(
    400,
    policy=policies,
    options=maybe(
        max_bytes=st.integers(8, 80),
        max_age=mostly(st.integers(0, 2)),
        age_by=mostly(st.sampled_from(["task", "time"])),
        blocked=mostly(st.sampled_from(["refuse", "skip"])),
        secret=mostly(st.just(b"x" * 16)),
        collate=st.just(list) | things,
    ),
    first=st.sampled_from(held),
    operations=operations,
    mapped=st.booleans(),
)
def test_whatever_a_memory_is_bent_by_it_is_whole_or_as_it_was(
    tmp_path_factory, policy, options, first, operations, mapped
):
    storage = MappedStorage(tmp_path_factory.mktemp("bent")) if mapped else None
    memory = attempt(lambda: Memory(policy, storage, **options))
    if refused(memory):
        return
    attempt(lambda: memory.add(**first, tasks=0, times=0.0))
    for name, given in operations:
        before, files = _known(memory), _rows_of(storage)
        outcome = attempt(functools.partial(getattr(memory, name), **given))
        if refused(outcome) or name == "sample":
            assert _known(memory) == before
            assert _rows_of(storage) == files
        if memory.max_bytes is not None:
            assert memory.nbytes <= memory.max_bytes
        examples = [*memory.examples()]
        gone = {each for record in memory.erasures for each in record.ids}
        assert not gone & {example.id for example in examples}
        assert len(examples) == len(memory)
        if len(memory):
            held = memory.read(range(len(memory)))
            assert held.ids == [example.id for example in examples]


@generated(
    150,
    name=mostly(st.just("new")),
    batch=batches,
)
def test_a_folder_is_a_memory_or_refused(tmp_path_factory, monkeypatch, name, batch):
    place = tmp_path_factory.mktemp("mapped")
    monkeypatch.chdir(place)  # where a name without a folder leads
    name = place / "new" if isinstance(name, str) and name == "new" else name
    storage = attempt(lambda: MappedStorage(name))
    if refused(storage):
        return
    where, length = storage.folder, _filled(Memory(Fifo(3), storage), batch)
    del storage
    assert len(Memory.load(where)) == length


def _filled(memory, batch):
    attempt(lambda: memory.add(batch))
    memory.save(memory.storage.folder)
    return len(memory)


parts = mostly(
    st.lists(
        st.builds(torch.ones, st.integers(0, 3)) | st.builds(torch.ones, st.just(2), st.just(2)),
        max_size=3,
    )
)


@generated(
    300,
    parts=parts,
    padded=mostly(st.builds(torch.ones, sizes, sizes)),
    lengths=mostly(st.lists(st.integers(-1, 4), max_size=3)),
    value=mostly(st.sampled_from([0, -1, 0.5])),
)
def test_columns_of_any_length_are_made_or_refused(parts, padded, lengths, value):
    for made in (
        attempt(lambda: Ragged(parts)),
        attempt(lambda: Ragged.from_padded(padded, lengths)),
    ):
        if not refused(made):
            attempt(lambda made=made: made.padded(value))
            attempt(lambda made=made: Memory(Reservoir(3)).add(made))


@generated(200, data=things, labels=mostly(st.lists(st.integers(0, 2), max_size=4)), batch=batches)
def test_what_backs_a_memory_of_indices_is_read_or_refused(data, labels, batch):
    storage = attempt(lambda: IndexStorage(data, labels=labels))
    if not refused(storage):
        memory = Memory(Fifo(3), storage, collate=list)
        if not refused(attempt(lambda: memory.add(torch.arange(2)))):
            attempt(lambda: memory.sample(2))
        attempt(lambda: memory.add(batch))
