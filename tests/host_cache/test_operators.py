"""What operators see of a host cache, and do to it, from a process that is none of its workers."""

import pytest

from tests.host_cache.workers import MAX_BYTES, make_cache
from tests.waiting import until
from wheelcache.errors import CacheClosed

pytest.importorskip("wheelcache.watch")

from wheelcache.watch import entry_commands, site_commands
from wheelcache.watch.site import Own, Site

STORE = """
cache.set("user:1", "one", ttl=100, tags=["users"])
cache.set("user:2", "two", tags=["users"])
cache.set("page:1", "x" * 500)
assert cache.get("user:1") == "one"
cache.engine.observed.observer.publication.run_now()
"""


@pytest.fixture
def both(worker, folder, tmp_path, closed):
    """A worker that has stored three entries, and the cache of this process."""
    options = {"name": "shared", "figures_dir": f"{tmp_path}/figures"}
    other = worker(**options)
    other(STORE)
    return other, closed(make_cache(folder, **options))


def run(cache, action, target=None, **options):
    given = {"target": target, "pattern": None, "tag": None, "show_value": False, **options}
    report = entry_commands.run(action, given, [cache], None)
    return [str(line) for line in report.view], report.failure


def test_commands_read_delete_and_clear_the_entries_of_a_worker_that_has_ended(both):
    other, cache = both
    other.kill()
    assert run(cache, "keys", "user:*") == (["user:1", "user:2"], None)
    (shown,), failure = run(cache, "get", "user:1", show_value=True)
    assert failure is None
    assert shown.startswith("present, ")
    assert shown.endswith(", str, tags 'users', value 'one'")
    assert run(cache, "tags", "*") == (["2\tusers"], None)
    assert run(cache, "delete", "user:2") == (["1 entry deleted"], None)
    assert cache.get("user:2") is None
    assert run(cache, "delete", tag="users") == (["entries of the tag deleted"], None)
    assert run(cache, "keys", "*") == (["page:1"], None)
    assert site_commands.clear([cache], "shared").view[0].startswith("'shared': removed ")
    assert cache.keys() == []


def test_the_sums_over_all_workers_count_each_entry_once_and_the_bounds_apply_to_all_together(both):
    cache = both[1]
    # Reading alone makes this process one of the workers.
    assert cache.get("user:1") == "one"

    def read():
        cache.engine.observed.observer.publication.run_now()
        (figures,) = Site([cache], Own.NONE).caches
        return figures

    assert until(lambda: (read().workers, read().stats.size, read().stats.hits) == (2, 3, 2), note=read)
    figures = read()
    assert figures.memory == cache.stats().weight > 500
    assert (figures.max_entries, figures.max_weight) == (None, MAX_BYTES)
    assert figures.fullness == cache.stats().weight / MAX_BYTES
    assert cache.stats().size == 3


def test_a_closed_cache_refuses_reads_and_keeps_the_entries_of_others(both):
    other, cache = both
    assert cache.get("user:1") == "one"
    cache.close()
    for call in (lambda: cache.get("user:1"), lambda: cache.set("key", 1), lambda: cache.delete("user:1")):
        with pytest.raises(CacheClosed):
            call()
    assert repr(cache)
    assert other("cache.get('user:1')") == "one"
