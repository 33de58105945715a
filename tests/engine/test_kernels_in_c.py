"""The kernels that are written in C++, compiled for the host: what a GPU will compute."""

import ctypes
import math
import shutil
import subprocess

import numpy as np
import pytest
import torch

from engram.engine import Batch, cross_entropy
from engram.engine._entropies import SOURCE as ENTROPIES
from engram.models._rectified import SOURCE as RECTIFY

WRAPPERS = """
extern "C" void two(const double* in, double* out)
{ entropies<double>(in[0], in[1], in[2], in[3], out[0], out[1]); }
extern "C" void one(const double* in, double* out) { out[0] = rectify<double>(in[0], in[1]); }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "all.cpp").write_text("#include <math.h>\n" + ENTROPIES + RECTIFY + WRAPPERS)
    flags = ["-shared", "-fPIC", "-Wall", "-Werror"]
    subprocess.run([compiler, *flags, "-o", folder / "all.so", folder / "all.cpp"], check=True)
    return ctypes.CDLL(str(folder / "all.so"))


@pytest.mark.parametrize(("source", "name"), [(ENTROPIES, "entropies"), (RECTIFY, "rectify")])
def test_torch_finds_the_function_in_the_source(source, name):
    assert torch.cuda.jiterator._create_jit_fn(source).kernel_name == name


def call(function, *inputs):
    given, out = np.array(inputs, dtype=np.float64), np.empty(2)
    function(*(ctypes.c_void_p(array.ctypes.data) for array in (given, out)))
    return out


def test_a_sum_below_zero_is_cut_off_and_trouble_is_not(library):
    for product, bias, expected in [(2, 1, 3), (2, -3, 0), (-2, 2, 0), (math.inf, 1, math.inf)]:
        assert call(library.one, product, bias)[0] == expected
    assert math.isnan(call(library.one, math.nan, 1)[0])
    assert math.isnan(call(library.one, 1, math.nan)[0])


@pytest.mark.parametrize("kind", ["plain", "weighted", "masked", "grouped"])
def test_entropies_are_those_of_the_operations(library, kind):
    source = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 6, 4, dtype=torch.float64, generator=source)
    labels = torch.randint(2, (2, 6), generator=source)
    batch = Batch(logits, labels, groups=3 if kind == "grouped" else 1)
    shares = torch.full((2, 6), batch.groups / 6, dtype=torch.float64)
    if kind == "weighted":
        shares = torch.rand(2, 6, dtype=torch.float64, generator=source)
        batch = batch._replace(weights=shares)
    if kind == "masked":
        batch = batch._replace(outputs=torch.tensor([True, True, False, True]).expand(2, 6, 4))
        logits = logits.masked_fill(~batch.outputs, -math.inf)
    logs = torch.log_softmax(logits, -1)
    ours = [
        [
            [call(library.two, logs[r, b, c], labels[r, b], c, shares[r, b]) for c in range(4)]
            for b in range(6)
        ]
        for r in range(2)
    ]
    losses, gradient = torch.from_numpy(np.array(ours)).unbind(-1)
    expected, at_logits = cross_entropy(logits, batch)
    torch.testing.assert_close(losses.reshape(2, batch.groups, -1).sum(-1), expected)
    torch.testing.assert_close(gradient, at_logits)
