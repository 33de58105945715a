"""Checkpoint files: what goes in comes out, and nothing but what went in."""

import json
import os
import stat
from contextlib import suppress
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from engram.errors import EngramError
from engram.lab.protocol import checkpoint as files
from engram.lab.protocol import checkpoint as forms
from engram.lab.protocol.checkpoint import decode, encode
from engram.memory import Fifo, Memory
from engram.testing import equal

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**200), 2**200),  # a generator's state has 128 bits
    st.floats(allow_nan=False),
    st.text(),
    st.builds(
        lambda dtype, shape: torch.arange(int(np.prod(shape))).reshape(shape).to(dtype),
        st.sampled_from(DTYPES),
        st.lists(st.integers(0, 3), max_size=3),
    ),
    st.builds(
        lambda dtype, shape: np.arange(int(np.prod(shape))).reshape(shape).astype(dtype),
        st.sampled_from(["uint8", "int64", "float32", "bool"]),
        st.lists(st.integers(0, 3), max_size=3),
    ),
)
states = st.dictionaries(
    st.text(st.characters(blacklist_characters="/", blacklist_categories=["Cs"])),
    st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
            st.dictionaries(st.text("abc"), inner, max_size=3),
        ),
        max_leaves=8,
    ),
    max_size=4,
)


def types(state):
    """Return the types of everything in a state, tensors' dtypes and shapes included."""
    if isinstance(state, dict):
        return {name: types(value) for name, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state), [types(value) for value in state]
    if isinstance(state, torch.Tensor | np.ndarray):
        return type(state), state.dtype, tuple(state.shape)
    return type(state)


@settings(deadline=None, max_examples=60)
@given(states)
def test_a_state_comes_back_as_it_was(tmp_path_factory, state):
    path = tmp_path_factory.getbasetemp() / "state.safetensors"
    tensors = {}
    document = encode(state, "state", tensors)
    files.write(path, forms.Contents(document, tensors))
    back = files.read(path)
    again = decode(back.document, back.tensors)
    assert types(again) == types(state)
    assert equal(again, state)


def test_numbers_that_are_none_come_back():
    values = [float("nan"), float("inf"), float("-inf")]
    document = json.loads(json.dumps(encode(values, "s", {}), allow_nan=False))
    assert repr(decode(document, {})) == repr(values)


def test_tensors_that_share_memory_are_saved_apart(tmp_path):
    whole, tensors = torch.arange(6), {}
    document = encode(
        {"whole": whole, "part": whole[1:3], "turned": whole.view(2, 3).T}, "s", tensors
    )
    files.write(tmp_path / "a.safetensors", forms.Contents(document, tensors))
    back = decode(*files.read(tmp_path / "a.safetensors"))
    assert back["part"].tolist() == [1, 2]
    assert back["turned"].tolist() == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (object(), "object"),
        ({1, 2}, "set"),
        (b"bytes", "bytes"),
        (np.int64(3), "int64"),
        ({1: 2}, "dict"),
        (np.array(["a"]), "array of <U1"),
        (np.array([None]), "array of object"),
        (1 + 2j, "complex"),
    ],
)
def test_what_no_file_holds_is_refused_by_name(value, kind):
    with pytest.raises(EngramError, match=f"but state/rule/0 is a {kind}"):
        encode({"rule": [value]}, "state", {})


@pytest.mark.parametrize(
    "node", [{"set": []}, {"tensor": "other"}, {"list": 3}, {}, [], {"a": 1, "b": 2}]
)
def test_an_entry_of_no_known_type_is_refused(node):
    with pytest.raises(EngramError, match="no entry like"):
        decode(node, {})


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "run.safetensors"
    for number in range(2):
        files.write(path, forms.Contents({"number": number}, {"weights": torch.arange(4.0)}))
    return path


def test_the_one_before_is_kept_and_nobody_else_may_read(written):
    assert files.read(written).document == {"number": 1}
    assert files.read(files.previous_of(written)).document == {"number": 0}
    assert sorted(path.name for path in written.parent.iterdir()) == [
        "run.previous.safetensors",
        "run.safetensors",
    ]
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    files.remove(written)
    assert list(written.parent.iterdir()) == []


def test_a_removal_that_is_cut_short_leaves_the_newest(written, monkeypatch):
    """By it, whoever comes next finds out whose it was, and removes the rest."""
    calls = iter(range(1))
    unlink = Path.unlink

    def dying(self, **options):
        if next(calls, None) is None:
            raise KeyboardInterrupt
        unlink(self, **options)

    monkeypatch.setattr(Path, "unlink", dying)
    with pytest.raises(KeyboardInterrupt):
        files.remove(written)
    assert [path.name for path in written.parent.iterdir()] == ["run.safetensors"]


def test_every_flipped_bit_and_every_missing_end_is_noticed(written):
    whole = written.read_bytes()
    for place in range(len(whole)):
        bad = bytearray(whole)
        bad[place] ^= 1 << (place % 8)
        written.write_bytes(bad)
        with pytest.raises(forms.DamagedError):
            files.read(written)
    for length in range(len(whole)):
        written.write_bytes(whole[:length])
        with pytest.raises(forms.DamagedError):
            files.read(written)
    written.write_bytes(whole + b"\0")
    with pytest.raises(forms.DamagedError):
        files.read(written)


def test_a_newer_version_and_another_kind_of_file_are_refused(written, monkeypatch):
    monkeypatch.setattr(forms, "VERSION", 2)
    files.write(written, forms.Contents({}, {}))
    monkeypatch.undo()
    with pytest.raises(
        EngramError, match="has format version '2', and this Engram reads"
    ) as caught:
        files.read(written)
    assert not isinstance(caught.value, forms.DamagedError)
    memory = Memory(Fifo(3))
    memory.save(written)
    with pytest.raises(EngramError, match="is not a checkpoint") as caught:
        files.read(written)
    assert not isinstance(caught.value, forms.DamagedError)


@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
def test_a_call_that_fails_leaves_a_whole_file_and_nothing_else(written, monkeypatch, call):
    real, left = getattr(os, call), 1

    def fail(*arguments, **options):
        nonlocal left
        left -= 1
        if left < 0 or call == "write":
            raise OSError(28, "No space left on device")
        return real(*arguments, **options)

    for spared in range(2):
        left = spared
        with monkeypatch.context() as patched:
            patched.setattr(os, call, fail)
            with suppress(OSError):
                files.write(written, forms.Contents({"number": 2}, {}))
        found = []
        for path in (written, files.previous_of(written)):
            if path.exists():
                found.append(files.read(path).document["number"])
        assert found
        assert found[0] == max(found)
        assert not list(written.parent.glob(".*"))
