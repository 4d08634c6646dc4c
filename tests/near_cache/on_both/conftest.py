from functools import partial

import pytest

from tests.backends.conftest import *  # noqa: F403
from tests.near_cache.tiers import SERVERS, WITH_ASYNC


@pytest.fixture(params=WITH_ASYNC.values(), ids=WITH_ASYNC)
def adapter(request):
    return request.param


@pytest.fixture
def make(over, adapter):
    """Make a tier over a cache in memory that records its calls."""
    return partial(over, adapter)


@pytest.fixture
def tier_of(over, request, tmp_path):
    """Make a tier, given its name and the kind of the cache behind, which all tiers of a test share, unless it is in
    memory."""

    def make(name, kind="files", /, **options):
        place = request.getfixturevalue(SERVERS[kind]) if kind in SERVERS else None
        return over(WITH_ASYNC[name], kind, tmp_path / "files" if kind == "files" else place, **options)

    return make
