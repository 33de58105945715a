"""A conformance kit for methods, ours and anybody's, and what tests of one's own are made of."""

from engram.testing.assertions import equal, no_reads
from engram.testing.checks import check_method
from engram.testing.practice import Practice, Subject

__all__ = ["Practice", "Subject", "check_method", "equal", "no_reads"]
