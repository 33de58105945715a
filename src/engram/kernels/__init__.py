"""Kernels for GPUs: whether they can be had."""

from engram.kernels._works import takes_kernels, triton_works

__all__ = ["takes_kernels", "triton_works"]
