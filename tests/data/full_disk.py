"""A disk that takes no more."""

import resource
from contextlib import contextmanager


@contextmanager
def files_of_at_most(size):
    """Let the system refuse to write more, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
