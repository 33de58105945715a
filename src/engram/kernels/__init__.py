"""Kernels for GPUs, written in Triton, and whether they can be had.

Each is a faster version of something that is written with torch where it is used. Triton comes with
torch for GPUs: no module here but this one and `availability` is imported before `triton_works`.
"""

from engram.kernels.availability import starting, takes_kernels, triton_works

__all__ = ["starting", "takes_kernels", "triton_works"]
