"""Kernels for GPUs: whether they can be had."""

from engram.kernels._works import starting, takes_kernels, triton_works

__all__ = ["starting", "takes_kernels", "triton_works"]
