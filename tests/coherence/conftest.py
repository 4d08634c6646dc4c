import pytest

from tests.coherence.processes import NAME, QUIET
from wheelcache import Cache
from wheelcache.coherence.shared_stamps import SLOTS, SharedStamps
from wheelcache.runtime.request_scope import end_request


@pytest.fixture
def map_stamps(tmp_path):
    """Map the file of stamps of this test, as one more process."""

    def map_file(slots=SLOTS):
        return SharedStamps(NAME, tmp_path, slots)

    return map_file


@pytest.fixture
def process(map_stamps, clock):
    """Make a cache that acts like a process of its own, with the stamps and the clock of this test."""

    def make(slots=SLOTS, **options):
        return Cache(stamps=map_stamps(slots), **{"clock": clock, "jitter": 0, **QUIET, **options})

    return make


@pytest.fixture
def pair(process):
    return process(), process()


@pytest.fixture
def stamps_file(tmp_path, map_stamps):
    """Return the path of the file of stamps, after creating it."""
    map_stamps()
    (file,) = tmp_path.iterdir()
    return file


@pytest.fixture(autouse=True)
def _request():
    """End the request at the end of a test, so that the next test does not fill its misses."""
    yield
    end_request()
