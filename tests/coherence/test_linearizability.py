"""No read that begins after a write returned gets an older version, with threads, processes and all methods."""

import pytest

from tests.coherence.linearizability import THREADS, Setting, outdated_reads, run

pytestmark = pytest.mark.deep

REQUESTS = 300_000
"""The number of requests of all threads together."""

SETTINGS = {
    "coherence and fill_wait": Setting(processes=4, is_coherent=True, waits=True),
    "coherence": Setting(processes=4, is_coherent=True, waits=False),
    "fill_wait": Setting(processes=1, is_coherent=False, waits=True),
}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_no_read_that_begins_after_a_write_has_returned_gets_an_older_version(tmp_path, at_length, setting):
    requests = at_length(REQUESTS)
    reads, outdated = outdated_reads(run(tmp_path, setting, requests // (setting.processes * THREADS), seed=0))
    assert not outdated, f"{len(outdated)} of {reads} reads:\n" + "\n".join(outdated[:10])
    assert reads > requests / 2


@pytest.mark.servers
def test_no_read_that_begins_after_a_drop_of_its_tag_gets_a_value_of_a_redis_from_before(
    tmp_path, at_length, empty_redis
):
    requests = at_length(REQUESTS // 10)
    setting = Setting(processes=4, is_coherent=False, waits=False, redis_port=empty_redis.port)
    reads, outdated = outdated_reads(run(tmp_path, setting, requests // (4 * THREADS), seed=0))
    assert not outdated, f"{len(outdated)} of {reads} reads:\n" + "\n".join(outdated[:10])
    assert reads > requests / 3


BACKENDS = "django.core.cache.backends."
BEHIND = {
    "redis, tracked": (BACKENDS + "redis.RedisCache", True),
    "redis": (BACKENDS + "redis.RedisCache", False),
    "memcached": (BACKENDS + "memcached.PyMemcacheCache", False),
    "files": (BACKENDS + "filebased.FileBasedCache", False),
}


@pytest.mark.servers
@pytest.mark.parametrize(("backend", "is_tracked"), BEHIND.values(), ids=BEHIND)
def test_no_read_that_begins_after_a_drop_of_its_tag_gets_a_value_that_was_computed_before_it(
    tmp_path, at_length, empty_redis, memcached, backend, is_tracked
):
    locations = {"redis.RedisCache": f"redis://localhost:{empty_redis.port}", "memcached.PyMemcacheCache": memcached}
    location = locations.get(backend.removeprefix(BACKENDS), str(tmp_path / "files"))
    setting = Setting(4, is_coherent=True, waits=False, backend=backend, location=location, is_tracked=is_tracked)
    requests = at_length(REQUESTS // 10)
    reads, outdated = outdated_reads(run(tmp_path, setting, requests // (4 * THREADS), seed=0))
    assert not outdated, f"{len(outdated)} of {reads} reads:\n" + "\n".join(outdated[:10])
    assert reads > requests / 3
