"""What ``get_or_set`` and ``aget_or_set`` take beyond Django's: stale values meanwhile, refreshes, timeouts, Nones."""

import asyncio
import contextlib
import threading

import pytest
from django.db import connections
from django.utils import timezone, translation

from tests.engines import engine
from tests.waiting import PATIENCE, until
from wheelcache import LoadTimeout

ASKS = ["get_or_set", "aget_or_set"]


@pytest.fixture(params=ASKS)
def ask(request, loop):
    """``ask(cache, key, default, timeout, ...)``, with threads and with coroutines."""

    def ask_either(cache, *args, **kwargs):
        if request.param == "get_or_set":
            return cache.get_or_set(*args, **kwargs)
        return loop(lambda: cache.aget_or_set(*args, **kwargs))

    return ask_either


@pytest.fixture
def loop():
    """Run a coroutine on an event loop that goes on afterwards, as a server's does; call with what makes it."""
    running = asyncio.new_event_loop()
    thread = threading.Thread(target=running.run_forever)
    thread.start()

    async def in_time(make):
        async with asyncio.timeout(PATIENCE):
            return await make()

    yield lambda make: asyncio.run_coroutine_threadsafe(in_time(make), running).result(PATIENCE * 2)
    running.call_soon_threadsafe(running.stop)
    thread.join(PATIENCE)
    running.close()


class Loader:
    """Returns or raises what it is given, one after the other; None is a value like any other."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.calls = 0
        self.free = threading.Event()
        self.free.set()

    def __call__(self):
        outcome = self.outcomes[min(self.calls, len(self.outcomes) - 1)]
        self.calls += 1
        assert self.free.wait(PATIENCE)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


# The options

WRONG = [
    *(("grace", wrong, "a number of seconds > 0, or None") for wrong in (0, -1, "5", True, float("nan"), float("inf"))),
    *(("refresh_ahead", wrong, "a fraction, 0 < fraction < 1, or None") for wrong in (0, 1, -0.5, "0.5", True)),
    *(("load_timeout", wrong, "a number of seconds > 0, or None") for wrong in (0, -1, "5", False, [], float("inf"))),
    *(("negative_ttl", wrong, "a number of seconds > 0, or None") for wrong in (0, -1, "5", True, {})),
    *(("fail_safe", wrong, "True or False") for wrong in (1, 0, None, "yes")),
]


@pytest.mark.parametrize(("option", "wrong", "takes"), WRONG)
@pytest.mark.parametrize("there", [True, False])
def test_a_wrong_option_is_an_error_that_names_it_as_djangos_spelling_has_it(make, ask, option, wrong, takes, there):
    cache = make()
    if there:
        cache.set("key", 1)
    loader = Loader("value")
    with pytest.raises((TypeError, ValueError)) as refused:
        ask(cache, "key", loader, 60, **{option: wrong})
    assert str(refused.value) == f"{option} must be {takes}, not {wrong!r}"
    assert loader.calls == 0
    assert ("key" in cache) is there


def test_fail_safe_without_grace_is_an_error_that_says_so(make, ask):
    with pytest.raises(TypeError, match="fail_safe needs grace"):
        ask(make(), "key", 1, 60, fail_safe=True)


def test_timeout_is_djangos_and_not_the_engines(make, ask, clock):
    cache = make()
    assert ask(cache, "key", "value", timeout=10, load_timeout=5) == "value"
    clock.advance(10)
    assert "key" not in cache


@pytest.mark.parametrize(
    "options", [{}, {"grace": 5}, {"refresh_ahead": 0.5}, {"load_timeout": 5}, {"negative_ttl": 5}]
)
def test_djangos_own_arguments_stay_as_they_are(make, ask, clock, options):
    cache = make(TIMEOUT=50)
    assert ask(cache, "callable", lambda: ["a"], **options) == ["a"]
    assert ask(cache, "value", ["b"], None, 2, **options) == ["b"]
    assert ask(cache, "none", None, **options) is None
    assert ask(cache, "not-kept", "now", 0, **options) == "now"
    assert ask(cache, "not-kept", "later", -1, **options) == "later"
    assert engine(cache).expires_in(":1:callable") == 50
    assert cache.get("value", version=2) == ["b"]
    assert cache.get("none", "default") is None
    cache.set("kept", "before")
    assert ask(cache, "kept", "now", 0, **options) == "before"


# Grace


def test_within_its_grace_a_stale_value_is_served_while_one_refresh_loads_it_anew(make, ask, clock):
    cache = make()
    loader = Loader("first", "second")
    assert ask(cache, "key", loader, 10, grace=20) == "first"
    clock.advance(15)
    assert cache.get("key") is None
    if ask(cache, "key", loader, 10, grace=20) != "second":
        assert until(lambda: cache.get("key") == "second")
    assert loader.calls == 2
    assert ask(cache, "key", loader, 10, grace=20) == "second"


def test_a_stale_value_is_served_without_waiting_for_its_refresh(make, clock):
    cache = make()
    loader = Loader("first", "second")
    cache.get_or_set("key", loader, 10, grace=20)
    clock.advance(15)
    loader.free.clear()
    assert [cache.get_or_set("key", loader, 10, grace=20) for _ in range(10)] == ["first"] * 10
    loader.free.set()
    assert until(lambda: cache.get("key") == "second")
    assert loader.calls == 2
    assert engine(cache).stats().stale_hits == 10


def test_after_its_grace_a_value_is_gone(make, ask, clock):
    cache = make()
    loader = Loader("first", "second")
    ask(cache, "key", loader, 10, grace=20)
    clock.advance(30)
    assert len(engine(cache)) == 0
    assert ask(cache, "key", loader, 10, grace=20) == "second"


@pytest.mark.parametrize("read", ["get", "get_many", "has_key", "touch", "incr", "delete", "expires"])
def test_only_those_who_say_grace_see_a_stale_value(make, clock, read):
    cache = make()
    cache.get_or_set("key", 1, 10, grace=20)
    clock.advance(15)
    if read == "incr":
        with pytest.raises(ValueError, match="not found"):
            cache.incr("key")
    else:
        calls = {
            "get": lambda: cache.get("key"),
            "get_many": lambda: cache.get_many(["key"]),
            "has_key": lambda: cache.has_key("key"),
            "touch": lambda: cache.touch("key", 60),
            "delete": lambda: cache.delete("key"),
            "expires": lambda: engine(cache).keys(),
        }
        assert not calls[read]()
    assert cache.get_or_set("key", "fresh", 10) == "fresh"


@pytest.mark.parametrize("write", ["set", "add", "delete", "clear"])
def test_what_is_written_over_a_stale_value_takes_its_place(make, clock, write):
    cache = make()
    cache.get_or_set("key", "stale", 10, grace=50)
    clock.advance(15)
    {
        "set": lambda: cache.set("key", "new"),
        "add": lambda: cache.add("key", "new"),
        "delete": lambda: cache.delete("key"),
        "clear": lambda: cache.clear(),
    }[write]()
    assert cache.get_or_set("key", lambda: "new", 10, grace=50) == "new"


def test_values_are_isolated_when_they_are_fresh_stale_and_refreshed(make, ask, clock):
    cache = make()
    loader = Loader({"list": [1]}, {"list": [2]})
    for advance in (0, 1, 15, 0):
        clock.advance(advance)
        found = ask(cache, "key", loader, 10, grace=20)
        assert found in ({"list": [1]}, {"list": [2]})
        found["list"].append("mine")
    assert until(lambda: cache.get("key") == {"list": [2]})
    assert loader.outcomes == [{"list": [1]}, {"list": [2]}]
    assert loader.calls == 2


def test_with_fail_safe_a_stale_value_outlives_a_failed_refresh_and_without_it_does_not(make, ask, clock, caplog):
    cache = make()
    for key, fail_safe in (("safe", True), ("unsafe", False)):
        loader = Loader("first", LookupError("down"))
        ask(cache, key, loader, 10, grace=100, fail_safe=fail_safe)
        clock.advance(15)
        assert ask(cache, key, loader, 10, grace=100, fail_safe=fail_safe) == "first"
        # The failure is known once it is logged.
        assert until(lambda key=key: any(f"':1:{key}'" in message for message in caplog.messages))
        if fail_safe:
            assert ask(cache, key, loader, 10, grace=100, fail_safe=True) == "first"
            assert loader.calls == 2
        else:
            with pytest.raises(LookupError, match="down"):
                ask(cache, key, loader, 10, grace=100)


# Refresh ahead


def test_past_its_share_of_the_timeout_a_hit_has_the_value_loaded_anew(make, ask, clock):
    cache = make()
    loader = Loader("first", "second")
    ask(cache, "key", loader, 100, refresh_ahead=0.8)
    clock.advance(79)
    assert ask(cache, "key", loader, 100, refresh_ahead=0.8) == "first"
    assert loader.calls == 1
    clock.advance(2)
    ask(cache, "key", loader, 100, refresh_ahead=0.8)
    assert until(lambda: cache.get("key") == "second")
    assert engine(cache).expires_in(":1:key") == 100
    assert loader.calls == 2


def test_what_never_expires_is_never_refreshed(make, ask, clock):
    cache = make()
    loader = Loader("first", "second")
    for _ in range(3):
        assert ask(cache, "key", loader, None, refresh_ahead=0.01, grace=5) == "first"
        clock.advance(10**6)
    assert loader.calls == 1


# Load timeout


def test_who_waits_longer_than_load_timeout_is_told_and_the_load_goes_on(make):
    cache = make()
    loader = Loader(["value"])
    loader.free.clear()
    with pytest.raises(LoadTimeout, match=r"0\.05 s"):
        cache.get_or_set("key", loader, 60, load_timeout=0.05)
    loader.free.set()
    assert until(lambda: cache.get("key") == ["value"])
    assert loader.calls == 1


def test_a_coroutine_does_not_wait_longer_than_load_timeout_either(make, loop):
    cache = make()

    async def use():
        released = asyncio.Event()

        async def slow():
            await released.wait()
            return ["value"]

        with pytest.raises(LoadTimeout):
            await cache.aget_or_set("key", slow, 60, load_timeout=0.05)
        released.set()
        while await cache.aget("key") is None:
            await asyncio.sleep(0)
        return await cache.aget("key")

    assert loop(use) == ["value"]


def test_a_stale_value_is_served_once_load_timeout_is_over(make, clock):
    cache = make()
    loader = Loader("first", "second")
    cache.get_or_set("key", loader, 10, grace=20)
    clock.advance(15)
    loader.free.clear()
    assert cache.get_or_set("key", loader, 10, grace=20, load_timeout=0.05) == "first"
    loader.free.set()
    assert until(lambda: cache.get("key") == "second")


# None


@pytest.mark.parametrize("serializer", ["pickle", "reference", "tests.django_backend.serializers.Json"])
def test_a_none_is_kept_for_negative_ttl_and_other_values_for_timeout(make, ask, clock, serializer):
    cache = make({"SERIALIZER": serializer})
    loader = Loader(None, ["value"])
    for advance in (0, 4):
        clock.advance(advance)
        assert ask(cache, "key", loader, 100, negative_ttl=5, grace=50) is None
    assert loader.calls == 1
    clock.advance(1)
    # No grace for a None: whoever asks now, waits.
    assert ask(cache, "key", loader, 100, negative_ttl=5, grace=50) == ["value"]
    assert engine(cache).expires_in(":1:key") == 100


def test_the_serializer_of_the_users_own_packs_what_a_refresh_loads(make, ask, clock):
    cache = make({"SERIALIZER": "tests.django_backend.serializers.Json"})
    loader = Loader({"a": (1,)}, {"a": (2,)})
    assert ask(cache, "key", loader, 10, grace=20) == {"a": [1]}
    clock.advance(15)
    ask(cache, "key", loader, 10, grace=20)
    assert until(lambda: cache.get("key") == {"a": [2]})


# What a loader finds in the thread that runs it


def somewhere_else(cache, loader, how, clock):
    """Have a thread of the pool run ``loader``; what it returned."""
    if how == "load_timeout":
        return cache.get_or_set("key", loader, 60, load_timeout=PATIENCE)
    cache.get_or_set("key", "first", 10, **({"grace": 20} if how == "grace" else {}))
    clock.advance(15 if how == "grace" else 9)
    assert (
        cache.get_or_set("key", loader, 10, **({"grace": 20} if how == "grace" else {"refresh_ahead": 0.5})) == "first"
    )
    assert until(lambda: cache.get("key") != "first" and cache.get("key") is not None)
    return cache.get("key")


IN_A_THREAD = ["grace", "refresh_ahead", "load_timeout"]


@pytest.mark.parametrize("how", IN_A_THREAD)
def test_the_language_and_the_time_zone_of_the_request_are_active_in_the_loader(make, clock, how):
    def loader():
        return threading.get_ident(), translation.get_language(), timezone.get_current_timezone_name()

    for language, zone in (("de", "Asia/Tokyo"), ("fr", "Europe/Paris")):
        with translation.override(language), timezone.override(zone):
            thread, *found = somewhere_else(make(), loader, how, clock)
        assert thread != threading.get_ident()
        assert found == [language, zone]


def test_the_language_of_the_request_is_active_in_a_refreshing_task(make, clock, loop):
    cache = make()

    async def loader():
        return translation.get_language()

    async def use():
        with translation.override("de"):
            cache.set("other", 1)
            await cache.aget_or_set("key", loader, 10, grace=20)
            clock.advance(15)
        with translation.override("fr"):
            assert await cache.aget_or_set("key", loader, 10, grace=20) == "de"
        while await cache.aget("key") is None:
            await asyncio.sleep(0)
        return await cache.aget("key")

    assert loop(use) == "fr"


def test_the_language_that_a_loader_activates_in_the_callers_own_thread_stays(make):
    with translation.override("de"):
        make().get_or_set("key", lambda: translation.activate("fr"), 10, grace=20)
        assert translation.get_language() == "fr"


@pytest.fixture
def file_database(tmp_path, request):
    """A database that is a file, under the alias ``file``. One in memory stays open whatever closes it."""
    with contextlib.ExitStack() as stack:
        if request.config.pluginmanager.hasplugin("django"):
            stack.enter_context(request.getfixturevalue("django_db_blocker").unblock())
        connections.settings["file"] = {**connections.settings["default"], "NAME": tmp_path / "database.sqlite3"}
        yield
        del connections.settings["file"]


@pytest.mark.parametrize("how", IN_A_THREAD)
@pytest.mark.parametrize("fails", [False, True])
def test_the_database_connections_of_a_loaders_thread_are_closed_after_it(
    make, clock, file_database, how, fails, caplog
):
    used = []

    def loader():
        connection = connections["file"]
        used.append(connection)
        with connection.cursor() as cursor:
            cursor.execute("SELECT 41 + 1")
            (answer,) = cursor.fetchone()
        assert connection.connection is not None
        if fails:
            raise LookupError
        return answer

    cache = make()
    if fails and how == "load_timeout":
        with pytest.raises(LookupError):
            somewhere_else(cache, loader, how, clock)
    elif fails:
        cache.get_or_set("key", "first", 10, grace=20)
        clock.advance(15 if how == "grace" else 9)
        cache.get_or_set("key", loader, 10, grace=20, refresh_ahead=0.5)
    else:
        assert somewhere_else(cache, loader, how, clock) == 42
    assert until(lambda: used and used[0].connection is None)
    assert len(used) == 1


def test_the_loader_runs_once_however_many_ask_for_a_stale_value(make, clock, together):
    cache = make()
    loader = Loader("first", "second")
    cache.get_or_set("key", loader, 10, grace=20)
    clock.advance(15)
    loader.free.clear()
    assert set(together(lambda number: cache.get_or_set("key", loader, 10, grace=20))) == {"first"}
    loader.free.set()
    assert until(lambda: cache.get("key") == "second")
    assert loader.calls == 2


def test_a_full_cache_that_culls_makes_room_for_what_a_refresh_loads(make, clock):
    cache = make({"MAX_ENTRIES": 4, "CULL_FREQUENCY": 2})
    cache.get_or_set("key", "first", 10, grace=20)
    clock.advance(15)
    cache.set_many(dict.fromkeys("abc", 1))
    cache.get_or_set("key", lambda: "second", 10, grace=20)
    assert until(lambda: cache.get("key") == "second")
    assert len(engine(cache)) <= 4
