"""Kernels of Triton's: whether they can be had."""

from engram.kernels._works import triton_works

__all__ = ["triton_works"]
