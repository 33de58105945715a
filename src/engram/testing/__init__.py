"""Conformance kits for what anybody adds, and what tests of one's own are made of."""

from engram.testing.assertions import equal, no_reads
from engram.testing.benchmarks import check_benchmark
from engram.testing.checks import check_method
from engram.testing.networks import check_network
from engram.testing.policies import check_policy
from engram.testing.practice import Practice, Subject
from engram.testing.rules import check_rule

__all__ = [
    "Practice",
    "Subject",
    "check_benchmark",
    "check_method",
    "check_network",
    "check_policy",
    "check_rule",
    "equal",
    "no_reads",
]
