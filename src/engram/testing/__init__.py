"""A conformance kit for methods, ours and anybody's."""

from engram.testing.kit import check_method

__all__ = ["check_method"]
