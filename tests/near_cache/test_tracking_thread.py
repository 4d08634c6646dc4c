"""The thread and the connection of a ``Tracking``: start, stop, fork and exit; and its arguments."""

import subprocess
import sys
import threading
from math import inf

import pytest
import redis

from tests.memory import descriptors
from tests.runtime.forks import fork
from tests.waiting import PATIENCE, until
from wheelcache.near_cache import redis_tracking
from wheelcache.near_cache.redis_tracking import client_of


def tracking_threads():
    """Return the threads of all ``Tracking``, also of those that other tests have left."""
    return {thread for thread in threading.enumerate() if thread.name == "wheelcache-tracking"}


# Start and stop.


@pytest.mark.servers
@pytest.mark.alone
def test_stop_ends_the_thread_and_the_connection_for_good(shared_redis, track, copies):
    client = shared_redis.client()
    others = tracking_threads()
    tracking = track(client, copies, interval=1000.0, timeout=1000.0)
    assert len(tracking_threads() - others) == 1
    tracking.stop()
    assert tracking_threads() <= others
    assert tracking.trusted_until == -inf
    assert until(lambda: not client.client_list(_type="pubsub"))
    client.set("a:1", 1)
    tracking.start()
    tracking.stop()
    assert copies.told == [True, False]


def cannot_connect(timeout):
    raise ConnectionError("refused")


def test_stop_ends_the_wait_for_a_server_that_is_not_there(tracking_of, copies, lines, monkeypatch):
    monkeypatch.setattr(redis_tracking, "FIRST_PAUSE", 1000.0)
    others = tracking_threads()
    tracking = tracking_of(cannot_connect, copies)
    tracking.start()
    tracking.start()
    assert until(lines)
    assert len(tracking_threads() - others) == 1
    tracking.stop()
    assert until(lambda: tracking_threads() <= others)
    tracking.start()
    assert tracking_threads() <= others
    assert copies.told == []
    assert len(lines()) == 1


def test_where_no_thread_can_start_that_is_logged_once_and_tried_again(tracking_of, copies, monkeypatch, lines):
    def cannot(thread):
        raise RuntimeError("can't start new thread")

    tracking = tracking_of(cannot_connect, copies)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", cannot)
        tracking.start()
        tracking.start()
    (line,) = lines()
    assert "cannot start (can't start new thread); no local copies are used." in line
    tracking.start()
    assert until(lambda: "ConnectionError: refused" in lines()[-1])


def test_a_fork_pauses_the_thread_and_the_parent_goes_on(tracking_of, copies, lines):
    others = tracking_threads()
    tracking = tracking_of(cannot_connect, copies)
    tracking.start()
    assert until(lines)

    def child():
        assert not tracking_threads()
        tracking.start()
        assert until(lambda: len(lines()) > 1)

    assert fork(child)
    assert until(lambda: len(tracking_threads() - others) == 1)


EXIT = """
import logging, threading
from tests.near_cache.listeners import Copies
from wheelcache.near_cache.redis_tracking import Tracking

def connect(timeout):
    tried.set()
    raise ConnectionError("refused")

logging.disable()
tried = threading.Event()
Tracking(connect, b"a:", Copies()).start()
tried.wait()
"""


def test_the_interpreter_exits_while_the_thread_tries_to_connect():
    command = [sys.executable, "-W", "error", "-c", EXIT]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (outcome.returncode, outcome.stderr) == (0, "")


@pytest.mark.servers
@pytest.mark.alone
def test_a_child_of_fork_is_not_trusted_and_leaves_the_parents_connection_alone(shared_redis, track, copies):
    client = shared_redis.client()
    client.ping()
    others = set(descriptors("socket:"))
    tracking = track(client, copies)
    (before,) = client.client_list(_type="pubsub")
    # The connection, and the pair that wakes its thread.
    mine = set(descriptors("socket:")) - others
    assert mine

    def child():
        assert tracking.trusted_until == -inf
        assert copies.told == [True, False]
        assert mine.isdisjoint(descriptors("socket:"))
        tracking.start()
        assert until(lambda: copies.told == [True, False, True])
        client.set("a:child", 1)
        assert until(lambda: copies.told == [True, False, True, b"a:child"])
        assert len(client.client_list(_type="pubsub")) == 2
        tracking.stop()

    assert fork(child)
    assert copies.are_told(True, b"a:child")
    client.set("a:parent", 1)
    assert copies.are_told(True, b"a:child", b"a:parent")
    (after,) = client.client_list(_type="pubsub")
    assert after["id"] == before["id"]


# Arguments.


@pytest.mark.parametrize("cache", [None, redis.asyncio.Redis, redis.RedisCluster, object()])
def test_what_has_no_client_is_an_error(cache):
    with pytest.raises(TypeError, match=r"Tracking takes redis\.Redis or a cache with such a client"):
        client_of(cache)
