"""Every test of this folder runs over every implementation of the contract."""

import pytest

from tests.core.implementations import COMPILED, CORES


@pytest.fixture(params=[COMPILED, "python"])
def core_class(request):
    """A class that implements ``contract.Core``."""
    return CORES[request.param]


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def make(core_class, clock):
    """Make a core on the test's clock, without jitter unless asked for."""

    def make_core(**options):
        return core_class(**{"clock": clock, **options})

    return make_core


class Clock:
    """A clock whose seconds the test sets."""

    def __init__(self, now=0.0):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def python_core():
    return CORES["python"]
