"""Processes that are stopped or killed at the worst moment: the others go on."""

import time

from tests.host_cache.workers import database
from tests.waiting import until
from wheelcache.host_cache import host_file

MIB = 1 << 20

HOLD = """
import sqlite3
connection = sqlite3.connect({path!r}, isolation_level=None)
connection.execute("BEGIN {kind}")
connection.execute("SELECT count(*) FROM entries").fetchone()
"""


def hold(worker, path, kind):
    """Begin a transaction on the database, as between two statements of the cache. Without a kind, it is a read."""
    worker(HOLD.format(path=str(path), kind=kind))


def seconds(worker, code):
    """Return the seconds that a call takes."""
    began = time.monotonic()
    worker(code)
    return time.monotonic() - began


def test_others_go_on_with_a_new_file_beside_a_stopped_writer(worker, folder):
    stopped, other = worker(), worker()
    stopped("cache.set('key', 'old')")
    before = database(folder)
    hold(stopped, before, "IMMEDIATE")
    stopped.stop()
    assert other("cache.get('key')") == "old"
    assert seconds(other, "cache.set('key', 'new')") < 1
    assert seconds(other, "cache.delete('other')") < 0.3
    assert other("cache.get('key')") == "new"
    assert database(folder) != before
    (event,) = other("events")
    assert "begins with a new file, without entries: database is locked" in event
    stopped.go_on()
    stopped("_ = connection.execute('COMMIT')")
    assert stopped("cache.get('key')") == "new"
    stopped("cache.set('key', 'newer')")
    assert other("cache.get('key')") == "newer"
    assert stopped("events") == []


def test_a_slow_writer_is_waited_for_and_the_entries_stay(worker, folder, tmp_path):
    slow, other, has_begun = worker(), worker(), tmp_path / "begun"
    slow("cache.set('key', 'old')")
    before = database(folder)
    hold(slow, before, "IMMEDIATE")
    # As if another thread of the process had the GIL for longer than a writer waits for a stopped one.
    other.send(f"os.mkdir({str(has_begun)!r}), cache.set('other', 1), time.monotonic()")
    assert until(has_begun.exists)
    time.sleep(0.8)
    ends = slow("time.monotonic()")
    slow("_ = connection.execute('COMMIT')")
    *_, has_ended = other.answer()
    assert ends < has_ended < ends + 3
    assert (other("cache.get('key')"), other("cache.get('other')")) == ("old", 1)
    assert database(folder) == before
    assert other("events") == []


def test_the_log_is_bounded_beside_a_stopped_reader(worker, folder):
    stopped, other = worker(), worker()
    # With a smaller bound here.
    assert host_file.MOST_LOG == 64 * MIB
    stopped("cache.set('key', 'old')")
    before = database(folder)
    hold(stopped, before, "")
    stopped.stop()
    other(
        """
        from wheelcache.host_cache import host_file
        host_file.MOST_LOG = 4 << 20
        for number in range(2_000):
            cache.set(f"key {number % 200}", os.urandom(4000).hex())
            if events:
                break
        """
    )
    # The event comes before the new file.
    other(f"while os.path.exists({str(before)!r}): time.sleep(0.001)")
    other("cache.set('key', 'new')")
    (event,) = other("events")
    assert "since a reader was stopped" in event
    assert database(folder) != before
    assert sum(path.stat().st_size for path in folder.iterdir()) < 8 * MIB
    stopped.go_on()
    stopped("_ = connection.execute('COMMIT')")
    assert stopped("cache.get('key')") == "new"
