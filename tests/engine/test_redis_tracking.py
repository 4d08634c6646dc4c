"""Invalidations from a real redis-server, and everything that can come between."""

import subprocess
import sys
import textwrap
import threading
import time
from math import inf

import pytest
import redis

from tests.redis_server import RedisServer
from tests.scripts import FORKING
from tests.waiting import until
from wheelcache.near_cache import redis_tracking
from wheelcache.near_cache.redis_tracking import Tracking, client_of, connect_like

pytestmark = pytest.mark.servers

QUICK = {"interval": 0.1, "timeout": 0.1}
CALM = {"interval": 0.5, "timeout": 5.0}
"""For tests in which nothing is to be lost, however busy the machine."""


class Copies:
    """A listener that remembers what it was told."""

    def __init__(self):
        self.told = []
        self.lock = threading.Lock()

    def invalidated(self, keys):
        with self.lock:
            self.told += keys

    def flushed(self):
        self.invalidated(["all"])

    def trust(self, trusted):
        self.invalidated([trusted])


@pytest.fixture(scope="module")
def shared():
    with RedisServer() as server:
        yield server


@pytest.fixture
def server():
    with RedisServer() as server:
        yield server


@pytest.fixture
def track():
    trackings = []

    def start(client, copies, prefixes=(b"a:",), **times):
        tracking = Tracking(connect_like(client), prefixes, copies, **(times or CALM))
        trackings.append(tracking)
        tracking.start()
        assert until(lambda: tracking.trusted_until > time.monotonic())
        return tracking

    yield start
    for tracking in trackings:
        tracking.stop()


@pytest.fixture
def copies():
    return Copies()


@pytest.fixture
def client(shared, track, copies):
    client = shared.client()
    track(client, copies)
    return client


def lines(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "wheelcache"]


def is_told(copies, *expected):
    """Whether exactly this was told, in this order."""
    return until(lambda: len(copies.told) >= len(expected)) and copies.told == list(expected)


def test_set_delete_rename_and_scripts_are_told_in_order(client, copies):
    client.set("a:1", 1)
    client.delete("a:1")
    client.set("a:2", 1)
    client.rename("a:2", "a:3")
    client.eval("redis.call('set', 'a:4', 1)", 0)
    assert is_told(copies, True, b"a:1", b"a:1", b"a:2", b"a:2", b"a:3", b"a:4")


def test_what_changes_nothing_is_not_told(client, copies):
    client.get("a:1")
    client.delete("a:none")
    client.set("a:1", 1)
    assert is_told(copies, True, b"a:1")


def test_other_prefixes_are_not_told(shared, track):
    copies = Copies()
    client = shared.client()
    track(client, copies, [b"x:", b"y:"])
    for key in ("x", "z:1", "X:1", "x:1", "a:x:1", "y:1"):
        client.set(key, 1)
    assert is_told(copies, True, b"x:1", b"y:1")


def test_the_empty_prefix_is_every_key(shared, track, copies):
    client = shared.client()
    track(client, copies, [b""])
    client.set("x", 1)
    client.set(b"\xff\r\n", 1)
    assert is_told(copies, True, b"x", b"\xff\r\n")


def test_another_database_is_told_too(shared, client, copies):
    shared.client(db=3).set("a:1", 1)
    assert is_told(copies, True, b"a:1")


def test_expiration_by_the_server_is_told(client, copies):
    client.set("a:1", 1, px=30)
    assert is_told(copies, True, b"a:1", b"a:1")
    assert not client.exists("a:1")


def test_eviction_is_told(server, track, copies):
    client = server.client()
    track(client, copies)
    client.set("a:1", 1)
    client.config_set("maxmemory-policy", "allkeys-lru")
    client.config_set("maxmemory", 1)
    with pytest.raises(redis.ResponseError):
        client.set("b:1", 1)
    assert is_told(copies, True, b"a:1", b"a:1")


@pytest.mark.parametrize("command", ["FLUSHALL", "FLUSHDB", "FLUSHALL ASYNC"])
def test_a_flush_is_told_as_everything(client, copies, command):
    client.execute_command(*command.split())
    assert is_told(copies, True, "all")


def test_a_hundred_thousand_in_one_pipeline_are_all_told(client, copies):
    keys = [f"a:{number}" for number in range(100_000)]
    pipeline = client.pipeline(transaction=False)
    for key in keys:
        pipeline.set(key, 1)
    pipeline.execute()
    assert until(lambda: len(copies.told) > 100_000)
    assert sorted(copies.told[1:]) == sorted(key.encode() for key in keys)


def test_options_of_the_pool_that_do_not_fit_are_left_out(shared, track, copies):
    client = shared.client(protocol=3, decode_responses=True, health_check_interval=1, db=2)
    track(client, copies)
    client.set("a:1", 1)
    assert is_told(copies, True, b"a:1")


def test_a_unix_socket(shared, track, copies):
    with redis.Redis(unix_socket_path=shared.unix_socket) as client:
        track(client, copies)
        client.set("a:1", 1)
        assert is_told(copies, True, b"a:1")


def test_a_killed_connection_is_not_trusted_and_comes_back_with_one_line_each(shared, track, copies, caplog):
    client = shared.client()
    tracking = track(client, copies)
    client.client_kill_filter(_type="pubsub")
    assert is_told(copies, True, False, True)
    assert until(lambda: tracking.trusted_until > time.monotonic())
    client.set("a:1", 1)
    assert is_told(copies, True, False, True, b"a:1")
    lost, back = lines(caplog)
    assert lost.startswith("Writes to Redis keys a:* are not told (ConnectionError: ")
    assert back.startswith("Writes to Redis keys a:* are told again, after 0.")


def test_a_killed_server_is_not_trusted_until_it_is_back(server, track, copies, caplog):
    client = server.client()
    tracking = track(client, copies)
    server.kill()
    assert is_told(copies, True, False)
    assert tracking.trusted_until == -inf
    # Some tries in vain.
    assert not until(lambda: len(copies.told) > 2, seconds=0.7)
    server.start()
    assert is_told(copies, True, False, True)
    client.set("a:1", 1)
    assert is_told(copies, True, False, True, b"a:1")
    assert len(lines(caplog)) == 2


def test_a_stopped_server_is_not_trusted_for_longer_than_the_bound(server, track, copies, caplog):
    tracking = track(server.client(), copies, **QUICK)
    paused = time.monotonic()
    server.pause()
    # What was on its way may still arrive.
    bound = time.monotonic() + 0.2
    assert until(lambda: tracking.trusted_until == -inf or time.monotonic() > bound + 5)
    assert tracking.trusted_until == -inf
    assert time.monotonic() - paused < 0.2 + 1.0
    assert until(lambda: copies.told == [True, False])
    server.resume()
    assert until(lambda: len(lines(caplog)) == 2)
    assert copies.told == [True, False, True]
    assert "Silent: no answer within 0.1 s" in lines(caplog)[0]


def test_trusted_until_never_passes_the_bound_after_the_server_stopped(server, track, copies):
    tracking = track(server.client(), copies, **QUICK)
    for _ in range(3):
        server.pause()
        bound = time.monotonic() + 0.2
        latest = -inf
        while time.monotonic() < bound + 0.05:
            latest = max(latest, tracking.trusted_until)
        assert latest <= bound
        server.resume()
        assert until(lambda: tracking.trusted_until > time.monotonic())


def test_client_pause_is_noticed(server, track, copies):
    client = server.client()
    track(client, copies, **QUICK)
    client.client_pause(600)
    assert is_told(copies, True, False)
    assert until(lambda: copies.told[-1] is True)


def test_a_wrong_password_is_logged_once_and_tried_slowly(server, monkeypatch, caplog):
    monkeypatch.setattr(redis_tracking, "PAUSE_IF_REFUSED", 0.05)
    admin = server.client()
    admin.config_set("requirepass", "right")
    tries = []
    copies = Copies()
    connect = connect_like(server.client(password="wrong"))
    tracking = Tracking(lambda timeout: tries.append(1) or connect(timeout), [b"a:"], copies, **CALM)
    tracking.start()
    assert until(lambda: len(tries) > 3)
    assert copies.told == []
    (line,) = lines(caplog)
    assert "AuthenticationError: " in line
    assert "wrong" not in line
    assert "It takes Redis 6" in line
    admin.config_set("requirepass", "wrong")
    assert is_told(copies, True)
    assert until(lambda: len(lines(caplog)) == 2)
    tracking.stop()


@pytest.mark.parametrize("refusal", ["unknown command", "no right to the channel"])
def test_a_server_that_refuses_is_tried_once_a_minute(refusal, caplog):
    with RedisServer(*(["--rename-command", "CLIENT", ""] if refusal == "unknown command" else [])) as server:
        user = {}
        if refusal != "unknown command":
            server.client().execute_command("ACL", "SETUSER", "web", "on", ">secret", "~a:*", "resetchannels", "+@all")
            user = {"username": "web", "password": "secret"}
        tries = []
        copies = Copies()
        connect = connect_like(server.client(**user))
        tracking = Tracking(lambda timeout: tries.append(1) or connect(timeout), [b"a:"], copies, **CALM)
        tracking.start()
        assert until(lambda: lines(caplog))
        assert not until(lambda: len(tries) > 1, seconds=0.3)
        tracking.stop()
        assert copies.told == []
        assert len(lines(caplog)) == 1


def test_a_user_with_the_least_rights_is_enough(server, track, copies):
    client = server.client()
    rights = "+ping +subscribe +client|id +client|tracking &__redis__:invalidate"
    client.execute_command("ACL", "SETUSER", "web", "on", ">secret", *rights.split())
    tracking = track(server.client(username="web", password="secret"), copies, **QUICK)
    first = tracking.trusted_until
    assert until(lambda: tracking.trusted_until > first + 0.3)
    client.set("a:1", 1)
    assert until(lambda: b"a:1" in copies.told)


def test_a_listener_that_raises_is_logged_and_its_copies_dropped(shared, track, caplog):
    class Raises(Copies):
        def invalidated(self, keys):
            super().invalidated(keys)
            if keys == [b"a:bad"]:
                raise SystemExit("listener")

    copies = Raises()
    client = shared.client()
    track(client, copies)
    client.set("a:bad", 1)
    assert is_told(copies, True, b"a:bad", False, True)
    client.set("a:good", 1)
    assert is_told(copies, True, b"a:bad", False, True, b"a:good")
    assert [line.split(" ")[-1] for line in lines(caplog)][:1] == ["raised."]
    assert len(lines(caplog)) == 3


def test_a_listener_that_raises_when_told_to_trust_is_not_trusted(shared, caplog):
    class Raises(Copies):
        def trust(self, trusted):
            super().trust(trusted)
            raise ValueError("trust")

    copies = Raises()
    tracking = Tracking(connect_like(shared.client()), [b"a:"], copies, **CALM)
    tracking.start()
    assert until(lambda: len(copies.told) >= 4)
    assert copies.told[:4] == [True, False, True, False]
    assert tracking.trusted_until == -inf
    tracking.stop()


class Blocks(Copies):
    """Takes its time with one key."""

    def __init__(self):
        super().__init__()
        self.entered = threading.Event()
        self.go_on = threading.Event()

    def invalidated(self, keys):
        super().invalidated(keys)
        if keys == [b"a:block"]:
            self.entered.set()
            assert self.go_on.wait(10)


def test_a_thread_that_was_held_up_is_not_trusted_meanwhile_and_drops_nothing_when_it_catches_up(shared, track):
    copies = Blocks()
    client = shared.client()
    tracking = track(client, copies, interval=0.1, timeout=1.0)
    client.set("a:block", 1)
    assert copies.entered.wait(10)
    assert until(lambda: tracking.trusted_until < time.monotonic())
    client.set("a:1", 1)
    assert tracking.trusted_until < time.monotonic()
    copies.go_on.set()
    assert is_told(copies, True, b"a:block", b"a:1")
    assert until(lambda: tracking.trusted_until > time.monotonic())
    assert copies.told == [True, b"a:block", b"a:1"]


def test_a_listener_that_cannot_keep_up_is_not_trusted(shared, track, caplog):
    class Slow(Copies):
        def invalidated(self, keys):
            super().invalidated(keys)
            if keys != [True]:
                time.sleep(0.05)

    copies = Slow()
    client = shared.client()
    track(client, copies, **QUICK)
    for number in range(40):
        client.set(f"a:{number}", 1)
    assert until(lambda: False in copies.told)
    assert len(copies.told) < 40
    assert until(lambda: any("more than 0.1 s behind" in line for line in lines(caplog)))


def test_a_connection_that_the_server_drops_for_its_backlog_is_not_trusted(server, track):
    copies = Blocks()
    client = server.client()
    client.config_set("client-output-buffer-limit", "pubsub 100000 0 0")
    track(client, copies, interval=0.1, timeout=5.0)
    client.set("a:block", 1)
    assert copies.entered.wait(10)

    def is_dropped():
        # Keys of 1 kB each: the kernel, too, holds some megabytes.
        pipeline = client.pipeline(transaction=False)
        for number in range(2_000):
            pipeline.set(f"a:{number:01000}", 1)
        pipeline.execute()
        return not client.client_list(_type="pubsub")

    assert until(is_dropped)
    copies.go_on.set()
    assert until(lambda: copies.told[-1] is True and copies.told.count(True) == 2)
    assert copies.told.count(False) == 1


def test_stop_ends_the_thread_and_the_connection_and_what_is_told(shared, track, copies):
    client = shared.client()
    tracking = track(client, copies, interval=30.0, timeout=5.0)
    before = threading.active_count()
    started = time.monotonic()
    tracking.stop()
    assert time.monotonic() - started < 2
    assert threading.active_count() == before - 1
    assert tracking.trusted_until == -inf
    assert until(lambda: not client.client_list(_type="pubsub"))
    client.set("a:1", 1)
    tracking.start()
    tracking.stop()
    assert copies.told == [True, False]


def test_stop_ends_the_wait_for_a_server_that_is_not_there(server, copies, caplog):
    client = server.client()
    server.kill()
    tracking = Tracking(connect_like(client), [b"a:"], copies)
    tracking.start()
    assert until(lambda: lines(caplog))
    started = time.monotonic()
    tracking.stop()
    assert time.monotonic() - started < 0.9
    assert copies.told == []
    assert len(lines(caplog)) == 1


def test_stop_from_within_the_listener(shared, track):
    class Stops(Copies):
        def invalidated(self, keys):
            super().invalidated(keys)
            if keys == [b"a:1"]:
                self.tracking.stop()

    copies = Stops()
    client = shared.client()
    copies.tracking = track(client, copies)
    client.set("a:1", 1)
    assert is_told(copies, True, b"a:1", False)


def test_start_again_changes_nothing(shared, track, copies):
    client = shared.client()
    tracking = track(client, copies)
    for _ in range(3):
        tracking.start()
    assert len(client.client_list(_type="pubsub")) == 1


def test_where_no_thread_can_start_nothing_is_trusted(shared, copies, monkeypatch, caplog):
    def cannot(thread):
        raise RuntimeError("can't start new thread")

    tracking = Tracking(connect_like(shared.client()), [b"a:"], copies)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", cannot)
        tracking.start()
        tracking.start()
    assert tracking.trusted_until == -inf
    assert len(lines(caplog)) == 1
    tracking.start()
    assert is_told(copies, True)
    tracking.stop()


@pytest.mark.parametrize("prefixes", [[], [b"a:", b"a:b"], [b"", b"a"], [b"a", b"a"]])
def test_prefixes_that_the_server_would_refuse_are_errors(prefixes):
    with pytest.raises(ValueError, match="prefixes must not"):
        Tracking(lambda timeout: None, prefixes, Copies())


@pytest.mark.parametrize("name", ["interval", "timeout"])
@pytest.mark.parametrize("seconds", [0, -1, inf])
def test_times_that_cannot_be_are_errors(name, seconds):
    with pytest.raises(ValueError, match=f"{name} must be a finite number > 0, not {seconds}"):
        Tracking(lambda timeout: None, [b"a"], Copies(), **{name: seconds})


@pytest.mark.parametrize("cache", [None, redis.asyncio.Redis, redis.RedisCluster, object()])
def test_what_has_no_client_is_an_error(cache):
    with pytest.raises(TypeError, match=r"Tracking takes redis\.Redis or a cache with such a client"):
        client_of(cache)


PRELUDE = """
import logging, os, signal, sys, threading, time
import redis
from math import inf
from tests.engine.test_redis_tracking import Copies
from tests.waiting import until
from wheelcache.near_cache.redis_tracking import Tracking, client_of, connect_like

port = int(sys.argv[1])
logging.getLogger("wheelcache").addHandler(logging.NullHandler())
client = redis.Redis(port=port)
copies = Copies()
tracking = Tracking(connect_like(client), [b"a:"], copies)
"""


def run(server, script):
    outcome = subprocess.run(
        [sys.executable, "-W", "error", *FORKING, "-c", PRELUDE + textwrap.dedent(script), str(server.port)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert outcome.stderr == ""
    return outcome.stdout.split()


def test_the_interpreter_exits_while_connected(shared):
    assert run(
        shared,
        """
        tracking.start()
        assert until(lambda: copies.told == [True])
        print("told")
        """,
    ) == ["told"]


def test_the_interpreter_exits_while_invalidations_pour_in(shared):
    assert (
        run(
            shared,
            """
        def write():
            with redis.Redis(port=port) as other:
                while True:
                    other.set("a:1", 1)

        tracking.start()
        assert until(lambda: copies.told == [True])
        threading.Thread(target=write, daemon=True).start()
        assert until(lambda: len(copies.told) > 100)
        """,
        )
        == []
    )


def test_the_interpreter_exits_while_reconnecting(server):
    server.kill()
    started = time.monotonic()
    run(server, "tracking.start(); time.sleep(0.3)")
    assert time.monotonic() - started < 10


def test_the_interpreter_exits_while_the_server_does_not_answer(server):
    server.pause()
    run(server, "tracking.start(); time.sleep(0.3)")


def test_a_child_of_fork_is_not_trusted_and_leaves_the_parents_connection_alone(shared):
    assert run(
        shared,
        """
        def sockets():
            open_files = {int(number): f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")}
            return {
                number
                for number, path in open_files.items()
                if os.path.islink(path) and "socket" in os.readlink(path)
            }

        clients = lambda: client.client_list(_type="pubsub")
        assert clients() == []
        others = sockets()
        tracking.start()
        assert until(lambda: copies.told == [True])
        (before,) = clients()
        # The connection, and the pair that wakes its thread.
        mine = sockets() - others
        assert mine
        pid = os.fork()
        if pid == 0:
            try:
                signal.alarm(30)
                assert tracking.trusted_until == -inf
                assert copies.told == [True, False]
                assert threading.active_count() == 1
                assert not mine & sockets()
                print("closed", flush=True)
                tracking.start()
                assert until(lambda: copies.told == [True, False, True])
                assert len(clients()) == 2
                client.set("a:child", 1)
                assert until(lambda: copies.told == [True, False, True, b"a:child"])
                tracking.stop()
                print("child", flush=True)
            except BaseException as error:
                print(repr(error), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        assert until(lambda: copies.told == [True, b"a:child"])
        client.set("a:parent", 1)
        assert until(lambda: copies.told == [True, b"a:child", b"a:parent"])
        (after,) = clients()
        assert after["id"] == before["id"]
        print("parent")
        """,
    ) == ["closed", "child", "parent"]


def test_the_caches_of_the_frameworks_give_their_client(shared):
    pytest.importorskip("django_redis")
    pytest.importorskip("flask_caching")
    pytest.importorskip("cachelib")
    assert run(
        shared,
        """
        import django
        from django.conf import settings

        url = f"redis://127.0.0.1:{port}/1"
        backends = {
            "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": url},
            "other": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url},
        }
        settings.configure(CACHES=backends)
        django.setup()
        from cachelib import RedisCache
        from django.core.cache import caches
        from flask import Flask
        from flask_caching import Cache

        flask_cache = Cache(Flask("app"), config={"CACHE_TYPE": "RedisCache", "CACHE_REDIS_URL": url})
        made = [caches["default"], caches["other"], RedisCache("127.0.0.1", port), flask_cache.cache, client]
        for cache in made:
            copies = Copies()
            tracking = Tracking(connect_like(client_of(cache)), [b""], copies)
            tracking.start()
            assert until(lambda: copies.told == [True])
            cache.set("1", 1)
            assert until(lambda: len(copies.told) == 2)
            tracking.stop()
            print(copies.told[1].decode())
        """,
    ) == [":1:1", ":1:1", "1", "flask_cache_1", "1"]
