"""A disk that is full, as far as the files of this process go."""

import resource
from contextlib import contextmanager


@contextmanager
def room_for(size):
    """Limit the files of this process to ``size`` bytes. Python ignores the signal that comes with the error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
