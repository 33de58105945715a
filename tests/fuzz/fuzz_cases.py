"""Generated cases, counted, and the one promise that all of them hold a call to."""

import functools
import os

from hypothesis import HealthCheck, Phase, given, seed, settings

from engram.errors import EngramError

SEED = os.environ.get("ENGRAM_FUZZ_SEED")
"""What `make fuzz` generates other cases from; without it they are the same every time."""

CASES: dict[str, int] = {}
"""How many cases every test of a module that was imported has."""


def generated(cases, **strategies):
    """Run a test on so many generated cases, and check that it had them.

    They are the same every time, but for those of another `SEED`.
    """

    def decorate(test):
        CASES[f"{test.__module__}.{test.__name__}"] = cases
        calls = 0

        @functools.wraps(test)
        def counted(**arguments):
            nonlocal calls
            calls += 1
            test(**arguments)

        options = settings(
            max_examples=cases,
            derandomize=SEED is None,
            database=None,
            deadline=None,
            phases=[Phase.generate],  # they are small: to make one smaller takes minutes
            suppress_health_check=list(HealthCheck),
        )
        run = options(given(**strategies)(counted))
        if SEED is not None:
            run = seed(int(SEED))(run)

        @functools.wraps(run)
        def checked(**fixtures):
            run(**fixtures)
            assert calls >= cases

        return checked

    return decorate


def attempt(call):
    """Return what a call returns, or the EngramError that it raises: it may raise nothing else."""
    try:
        return call()
    except EngramError as error:
        check_sentence(str(error))
        return error


def refused(outcome):
    return isinstance(outcome, EngramError)


def check_sentence(text):
    """One printable line that ends, and that somebody can read."""
    assert text.endswith("."), text
    assert text.isprintable(), text
    assert 10 < len(text) < 400, text
