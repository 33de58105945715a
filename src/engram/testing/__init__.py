"""A conformance kit for methods, ours and anybody's."""

from engram.testing.checks import check_method

__all__ = ["check_method"]
