"""Every test of this folder runs over every implementation of the contract."""

import pytest

from tests.core.cores import COMPILED, CORES, Clock


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
    return lambda **options: core_class(**{"clock": clock, **options})
