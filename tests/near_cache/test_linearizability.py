"""No read that begins after a write returned gets an older version, with threads, processes and all methods."""

import pytest

from tests.near_cache.linearizability import THREADS, Setting, outdated_reads, run

pytestmark = pytest.mark.deep

REQUESTS = 300_000
"""The number of requests of all threads together."""


@pytest.mark.parametrize("waits", [True, False])
def test_no_read_that_begins_after_a_write_has_returned_gets_an_older_version(tmp_path, at_length, waits):
    requests = at_length(REQUESTS)
    reads, outdated = outdated_reads(run(tmp_path, Setting(1, waits=waits), requests // THREADS, seed=0))
    assert not outdated, f"{len(outdated)} of {reads} reads:\n" + "\n".join(outdated[:10])
    assert reads > requests / 2


@pytest.mark.servers
def test_no_read_that_begins_after_a_drop_of_its_tag_gets_a_value_that_was_computed_before_it(
    tmp_path, at_length, empty_redis
):
    requests = at_length(REQUESTS // 10)
    setting = Setting(4, waits=False, redis=f"redis://localhost:{empty_redis.port}")
    reads, outdated = outdated_reads(run(tmp_path, setting, requests // (4 * THREADS), seed=0))
    assert not outdated, f"{len(outdated)} of {reads} reads:\n" + "\n".join(outdated[:10])
    assert reads > requests / 3
