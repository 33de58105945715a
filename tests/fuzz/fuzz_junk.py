"""What people and programs give by mistake, and what they should have given."""

import copy
import math
import operator

import numpy as np
import torch
from hypothesis import strategies as st


class Rude:
    """Something whose text would spoil a sentence."""

    def __repr__(self):
        return "two\nlines \x1b[31m" + "x" * 5000


_FACTORIES = [
    *(lambda value=value: value for value in (None, True, False, "", "x", "a\nb", "\0", "\ud800")),
    *(lambda value=value: value for value in (-1, 0, 1, 3, 2**31, 2**63, 2**64, -(2**63), 10**400)),
    *(lambda value=value: value for value in (1.5, -0.0, math.nan, math.inf, -math.inf, 1e308)),
    *(lambda value=value: value for value in ("é" * 300, b"x", 1 + 2j, len, int, ..., Exception)),
    *(list, tuple, dict, set, object, Rude, bytearray),
    lambda: [1, "a"],
    lambda: [[1], [2, 3]],
    lambda: {"a": 1},
    lambda: {1: 2},
    lambda: iter([1, 2]),
    lambda: range(3),
    lambda: torch.tensor(1.0),
    lambda: torch.tensor([]),
    lambda: torch.zeros(0, 3),
    lambda: torch.zeros(2, 0),
    lambda: torch.tensor([1.0, math.nan]),
    lambda: torch.tensor([1, 2]),
    lambda: torch.tensor([2**63 - 1, -(2**63)]),
    lambda: torch.tensor([True, False]),
    lambda: torch.tensor([1j, 2]),
    lambda: torch.zeros(2, dtype=torch.float16),
    lambda: torch.zeros(2, 2, dtype=torch.bfloat16),
    lambda: torch.eye(2).to_sparse(),
    lambda: torch.zeros(2, 2, device="meta"),
    lambda: torch.zeros(2, requires_grad=True),
    lambda: np.array([1, 2]),
    lambda: np.array(2),
    lambda: np.array(["a", "b"]),
    lambda: np.array([object(), None]),
    lambda: np.array([1, 2], dtype="datetime64[s]"),
    lambda: np.zeros(2, dtype=[("a", int)]),
    lambda: np.float32(1),
    lambda: np.int64(3),
    lambda: torch.nn.Linear(2, 2),
    lambda: torch.float32,
    lambda: torch.device("cpu"),
]

junk = st.sampled_from(_FACTORIES).map(operator.methodcaller("__call__"))


def mostly(*good):
    """One of these nine times out of ten, else anything."""
    return st.sampled_from(range(10)).flatmap(lambda side: st.one_of(*good) if side else junk)


def maybe(**options):
    """Some of the options."""
    return st.fixed_dictionaries({}, optional=options)


_SHAPES = st.sampled_from([(), (0,), (1,), (2,), (2,), (3,), (2, 2), (2, 2), (0, 2), (3, 2, 2)])


def tensors(shapes=_SHAPES):
    """Small tensors of any shape, of some dtypes, with numbers that overflow and that are none."""
    scales = st.sampled_from([1.0, 1.0, 0.0, 1e30, 1e-30, math.nan, math.inf, -1.0])
    kinds = [torch.float32] * 3 + [torch.float64, torch.float16, torch.int64, torch.bool]
    return st.builds(_tensor, shapes, scales, st.sampled_from(kinds), st.integers(0, 99))


def _tensor(shape, scale, dtype, seed):
    values = torch.rand(shape, generator=torch.Generator().manual_seed(seed))
    if dtype.is_floating_point:
        return (values * scale).to(dtype)
    return (values * 5).to(dtype)


places = st.lists(st.integers(0, 20), min_size=1, max_size=4)


def changed(state, path, value):
    """Return a nested state in which the entry that a place leads to is another one, or is gone."""
    state = copy.copy(state)
    names = sorted(state) if isinstance(state, dict) else range(len(state))
    name = names[path[0] % len(names)]
    if isinstance(state[name], dict | list) and state[name] and len(path) > 1:
        state[name] = changed(state[name], path[1:], value)
    elif value is ...:
        del state[name]
    else:
        state[name] = value
    return state
