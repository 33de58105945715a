"""Tests hold on any machine, and `make test-portable` has the instructions that it asks for."""

import os
import platform
import re
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

pytestmark = pytest.mark.numerical


def test_no_generated_case_fails_for_the_time_that_it_takes():
    """A machine that is slow, or busy, is no fault of ours."""
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check


def test_the_tests_run_on_as_many_threads_as_were_asked_for():
    asked = os.environ.get("OMP_NUM_THREADS")
    if asked is None:
        pytest.skip("nothing was asked for")
    assert torch.get_num_threads() == int(asked)


def test_the_tests_run_with_the_instructions_that_were_asked_for():
    asked = os.environ.get("ATEN_CPU_CAPABILITY")
    if asked is None or platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("nothing was asked for, or nothing that this CPU has")
    assert torch.backends.cpu.get_cpu_capability() == asked.upper()


def test_whatever_is_marked_is_where_they_are_looked_for():
    root = Path(__file__).parents[1]
    (told,) = re.findall(r"(?m)^NUMERICAL := (.+)$", (root / "Makefile").read_text("utf-8"))
    places = {root / word for word in told.split() if "$" not in word}
    assert "$(wildcard tests/test_*.py)" in told
    for module in (root / "tests").rglob("*.py"):
        if "mark.numerical" in module.read_text("utf-8"):
            assert module.parent == root / "tests" or places & set(module.parents), module
