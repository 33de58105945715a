"""Kernels of pair rules without a GPU: their C++, compiled for the host and called on tensors."""

import ctypes
import shutil
import subprocess

import pytest
import torch

_TYPES = {torch.float32: "float", torch.float64: "double"}
_NUMBERS = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}
_WRAPPER = """
extern "C" void {function}(long count, const {number}* const* in, {number}* out)
{{ for (long i = 0; i < count; ++i) out[i] = {name}<{number}>({inputs}); }}
"""


class CompiledKernels:
    """Stands in for the compiler of kernels: ``make(source)`` gives a function of tensors."""

    def __init__(self, sources, folder):
        compiler = shutil.which("g++")
        if compiler is None:
            pytest.skip("needs a C++ compiler")
        self._names = {source: f"weigh_pair_{number}" for number, source in enumerate(sources)}
        text = ["#include <math.h>\n", *map(self._functions, self._names)]
        (folder / "rules.cpp").write_text("".join(text))
        library = folder / "rules.so"
        flags = ["-O1", "-ffp-contract=off", "-shared", "-fPIC", "-Wall", "-Werror"]
        subprocess.run([compiler, *flags, "-o", library, folder / "rules.cpp"], check=True)
        self._library = ctypes.CDLL(str(library))

    def _functions(self, source):
        name = self._names[source]
        inputs = ", ".join(f"in[{number}][i]" for number in range(_inputs(source)))
        wrappers = [
            _WRAPPER.format(function=f"{name}_{number}", number=number, name=name, inputs=inputs)
            for number in _TYPES.values()
        ]
        return source.replace("weigh_pair", name) + "".join(wrappers)

    def make(self, source):
        def weigh(*tensors):
            assert len(tensors) == _inputs(source)
            (dtype,) = {tensor.dtype for tensor in tensors}
            held = [tensor.contiguous() for tensor in torch.broadcast_tensors(*tensors)]
            result, pointer = torch.empty_like(held[0]), ctypes.POINTER(_NUMBERS[dtype])
            *inputs, output = (ctypes.cast(each.data_ptr(), pointer) for each in (*held, result))
            function = self._library[f"{self._names[source]}_{_TYPES[dtype]}"]
            function(ctypes.c_long(result.numel()), (pointer * len(inputs))(*inputs), output)
            return result

        return weigh


def _inputs(source):
    return source.partition("(")[2].partition(")")[0].count(",") + 1
