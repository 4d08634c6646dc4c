"""fill_wait: of all who miss a key at once with ``get``, one fills it, and the others get what he sets."""

import asyncio
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import flask
import flask_caching
import pytest

from tests.engines import engine
from tests.waiting import PATIENCE, THREADS, until
from wheelcache.flask_backend import WheelCache
from wheelcache.leases.fill_leases import end_request

LONG = 60
"""Seconds of a fill_wait that nobody should come to the end of; what takes less than PATIENCE did not wait for it."""

SHORT = 0.2

NAN, INF = float("nan"), float("inf")
TAKES = "fill_wait must be a number of seconds >= 0, or a dict of key prefixes (strings) to such numbers, not "


class Boom(Exception):
    pass


@pytest.fixture(autouse=True)
def _what_the_tests_own_thread_holds_ends():
    yield
    end_request()


@pytest.fixture
def calls():
    """Who was called how often."""
    return Counter()


@pytest.fixture
def cache(make):
    return make(fill_wait=LONG)


@pytest.fixture
def make_waiting_app(make_app):
    """Make an app with fill_wait: ``app, cache, backend = make_waiting_app()``."""

    def make_waiting_app(fill_wait=LONG, **config):
        app, cache = make_app(CACHE_OPTIONS={"fill_wait": fill_wait}, **config)
        return app, cache, app.extensions["cache"][cache]

    return make_waiting_app


@pytest.fixture
def in_thread():
    """Start a function in a thread of its own, each call in a new one; what it returns comes by ``result``."""
    pools = []

    def start(function, *args):
        pools.append(ThreadPoolExecutor(1))
        return pools[-1].submit(function, *args)

    yield start
    for pool in pools:
        pool.shutdown()


def leases(backend):
    return list(engine(backend)._leases.in_force.values())


def leased(backend):
    return [lease.key for lease in leases(backend)]


def waiting(backend):
    return sum(len(lease.waiters) for lease in leases(backend))


def seconds(function, *args):
    start = time.perf_counter()
    function(*args)
    return time.perf_counter() - start


# The option.


@pytest.mark.parametrize(
    "wrong",
    [-1, NAN, INF, "5", None, True, [5], {1: 5}, {"a": -1}, {"a": "5"}, {"a": None}, {"a": True}, {"a": {"b": 1}}],
    ids=repr,
)
def test_a_wrong_fill_wait_is_an_error_at_init_app_that_names_it_and_what_it_takes_and_got(make_app, wrong):
    with pytest.raises((TypeError, ValueError)) as refused:
        make_app(CACHE_OPTIONS={"fill_wait": wrong})
    assert TAKES in str(refused.value)
    assert repr(wrong["a"] if isinstance(wrong, dict) and "a" in wrong else wrong) in str(refused.value)


def test_fill_wait_is_among_the_options_that_an_unknown_one_is_told():
    with pytest.raises(TypeError, match="fill_wait"):
        WheelCache(fillwait=1)


@pytest.mark.parametrize("options", [{}, {"fill_wait": 0}, {"fill_wait": {}}, {"fill_wait": {"": 0, "a": 0.0}}])
def test_without_fill_wait_nobody_has_a_lease_and_nobody_waits(make_app, together, options):
    app, cache = make_app(CACHE_OPTIONS=options)
    backend = app.extensions["cache"][cache]
    assert app.teardown_appcontext_funcs == []
    assert together(lambda number: backend.get("key")) == [None] * THREADS
    assert leased(backend) == []


def test_of_the_prefixes_of_a_key_the_longest_says_how_long(make):
    cache = make(fill_wait={"": 0, "page:": LONG, "page:short:": SHORT, "page:short:never:": 0})
    for key in ("other", "page:one", "page:short:one", "page:short:never:one"):
        cache.get(key)
    now = engine(cache).clock()
    assert {lease.key: round(lease.until - now, 1) for lease in leases(cache)} == {
        "page:one": LONG,
        "page:short:one": SHORT,
    }


def test_prefixes_are_of_the_key_that_is_asked_for_and_not_of_the_one_that_is_stored(make_waiting_app):
    app, cache, backend = make_waiting_app({"view/": LONG}, CACHE_KEY_PREFIX="shop:")
    with app.app_context():
        cache.get("view/a")
        cache.get("shop:view/a")
        assert leased(backend) == ["shop:view/a"]
    assert leased(backend) == []


def test_who_waits_for_a_key_with_a_prefix_gets_its_value(make_waiting_app, in_thread):
    _, _, backend = make_waiting_app(CACHE_KEY_PREFIX="shop:")
    backend.get("key")
    waiter = in_thread(backend.get, "key")
    assert until(lambda: waiting(backend) == 1)
    backend.set("key", "value")
    assert waiter.result(PATIENCE) == "value"


# Who has a lease.


@pytest.mark.parametrize(
    "ask",
    [
        lambda cache: cache.has("key"),
        lambda cache: cache.get_many("key", "other"),
        lambda cache: cache.get_dict("key", "other"),
        lambda cache: cache.add("key", 1),
        lambda cache: cache.set("key", 1),
        lambda cache: cache.set_many({"key": 1}),
        lambda cache: cache.inc("key"),
        lambda cache: cache.dec("key"),
        lambda cache: cache.delete("key"),
        lambda cache: cache.delete_many("key"),
        lambda cache: cache.get_or_load("key", lambda: 1),
        lambda cache: cache.clear(),
    ],
    ids=[
        "has",
        "get_many",
        "get_dict",
        "add",
        "set",
        "set_many",
        "inc",
        "dec",
        "delete",
        "delete_many",
        "load",
        "clear",
    ],
)
def test_only_get_takes_a_lease_and_only_get_waits_for_one(cache, in_thread, ask):
    ask(cache)
    assert leased(cache) == []
    cache.delete("key")
    cache.get("key")
    assert leased(cache) == ["key"]
    in_thread(ask, cache).result(PATIENCE)


def test_a_get_that_hits_takes_no_lease_even_if_what_it_finds_is_none(cache):
    cache.set_many({"none": None, "list": []})
    assert (cache.get("none"), cache.get("list")) == (None, [])
    assert leased(cache) == []


def test_the_versions_of_memoized_functions_are_leased_by_get_many_and_what_is_asked_for_with_them(cache):
    assert cache.get_many("module.f_memver", "module.f.self_memver") == [None, None]
    assert leased(cache) == ["module.f_memver", "module.f.self_memver"]
    cache.set_many({"module.f_memver": "a", "module.f.self_memver": "b"})
    assert leased(cache) == []
    assert cache.get_dict("module.f_memver", "other_memver") == {"module.f_memver": "a", "other_memver": None}
    assert leased(cache) == ["other_memver"]


# The end of a lease.

ENDS = {
    "set": lambda cache: cache.set("key", [1]),
    "add": lambda cache: cache.add("key", [1]),
    "set_many": lambda cache: cache.set_many({"key": [1]}),
    "get_or_load": lambda cache: cache.get_or_load("key", lambda: [1]),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("by_another", [False, True], ids=["by holder", "by another"])
def test_all_who_wait_get_what_is_set_each_his_own(cache, in_thread, end, by_another):
    cache.get("key")
    waiters = [in_thread(cache.get, "key") for _ in range(4)]
    assert until(lambda: waiting(cache) == 4)
    if by_another:
        in_thread(end, cache).result(PATIENCE)
    else:
        end(cache)
    values = [waiter.result(PATIENCE) for waiter in waiters]
    assert values == [[1]] * 4
    assert len(set(map(id, values))) == 4
    assert leased(cache) == []


def test_who_waits_for_a_counter_gets_its_first_value(cache, in_thread):
    cache.get("key")
    waiter = in_thread(cache.get, "key")
    assert until(lambda: waiting(cache) == 1)
    cache.inc("key", 7)
    assert waiter.result(PATIENCE) == 7


def test_who_waits_for_a_none_gets_it_and_it_is_there(cache, in_thread):
    cache.get("key")
    waiter = in_thread(lambda: (cache.get("key"), cache.has("key"), leased(cache)))
    assert until(lambda: waiting(cache) == 1)
    cache.set("key", None)
    assert waiter.result(PATIENCE) == (None, True, [])


def test_who_waits_gets_a_value_that_is_too_big_to_be_kept(make, in_thread):
    cache = make(fill_wait=LONG, max_bytes=2000)
    cache.get("key")
    waiter = in_thread(cache.get, "key")
    assert until(lambda: waiting(cache) == 1)
    assert cache.set("key", "x" * 3000) is False
    assert waiter.result(PATIENCE) == "x" * 3000


GIVES_UP = {
    "delete": lambda cache: cache.delete("key"),
    "delete_many": lambda cache: cache.delete_many("other", "key"),
    "set with a timeout that is over": lambda cache: cache.set("key", 1, -1),
    "set_many with a timeout that is over": lambda cache: cache.set_many({"key": 1}, -1),
}


@pytest.mark.parametrize("give_up", GIVES_UP.values(), ids=GIVES_UP)
def test_when_the_holder_gives_up_exactly_one_of_those_who_wait_is_the_next(cache, in_thread, give_up):
    cache.get("key")
    misses, go_on = [], threading.Event()

    def fill():
        found = cache.get("key")
        if found is None:
            misses.append(1)
            assert go_on.wait(PATIENCE)
            cache.set("key", "filled")
        return found

    waiters = [in_thread(fill) for _ in range(4)]
    assert until(lambda: waiting(cache) == 4)
    give_up(cache)
    assert until(lambda: len(misses) == 1)
    assert waiting(cache) == 3
    go_on.set()
    assert sorted(str(waiter.result(PATIENCE)) for waiter in waiters) == ["None", "filled", "filled", "filled"]
    assert len(misses) == 1


def test_a_delete_by_another_leaves_the_holder_his_lease(cache, in_thread):
    cache.get("key")
    waiter = in_thread(cache.get, "key")
    assert until(lambda: waiting(cache) == 1)
    in_thread(cache.delete, "key").result(PATIENCE)
    assert waiting(cache) == 1
    cache.set("key", "value")
    assert waiter.result(PATIENCE) == "value"


def test_a_lease_times_out_and_the_next_to_ask_has_it(make, in_thread):
    cache = make(fill_wait=SHORT)
    cache.get("key")
    assert in_thread(seconds, cache.get, "key").result(PATIENCE) >= SHORT * 0.9
    assert in_thread(lambda: (cache.get("other"), leased(cache))).result(PATIENCE)[0] is None


def test_who_waited_in_vain_goes_on_as_after_a_miss(make, in_thread):
    cache = make(fill_wait=SHORT)
    cache.get("key")
    waited = [in_thread(seconds, cache.get, "key") for _ in range(4)]
    assert all(waiter.result(PATIENCE) < SHORT + 2 for waiter in waited)
    assert engine(cache).stats().misses == 5


def test_who_holds_a_lease_does_not_wait_for_another(cache, in_thread):
    def hold_and_ask(mine, other, held):
        cache.get(mine)
        held.wait(PATIENCE)
        return cache.get(other)

    held = threading.Barrier(2)
    both = [in_thread(hold_and_ask, "a", "b", held), in_thread(hold_and_ask, "b", "a", held)]
    assert [each.result(PATIENCE) for each in both] == [None, None]


def test_a_value_that_cannot_be_pickled_leaves_the_lease_to_the_end_of_the_request(make_waiting_app, in_thread):
    app, cache, backend = make_waiting_app()
    with app.app_context():
        cache.get("key")
        waiter = in_thread(backend.get, "key")
        assert until(lambda: waiting(backend) == 1)
        with pytest.raises(TypeError, match="pickle"):
            cache.set("key", threading.Lock())
        assert waiting(backend) == 1
    assert waiter.result(PATIENCE) is None


# Requests and app contexts.


def test_the_end_of_an_app_context_ends_its_leases(make_waiting_app, in_thread):
    app, cache, backend = make_waiting_app()
    with app.app_context():
        cache.get("key")
        waiters = [in_thread(backend.get, "key") for _ in range(3)]
        assert until(lambda: waiting(backend) == 3)
    assert until(lambda: any(waiter.done() for waiter in waiters))
    # That one's thread is idle and holds it.
    assert waiting(backend) == 2
    backend.set("key", "value")
    assert sorted(str(waiter.result(PATIENCE)) for waiter in waiters) == ["None", "value", "value"]


@pytest.mark.parametrize("same_app", [True, False])
def test_an_app_context_within_another_ends_its_own_leases_only(make_waiting_app, same_app):
    app, cache, backend = make_waiting_app()
    inner_app, inner_cache, inner_backend = (app, cache, backend) if same_app else make_waiting_app()
    with app.app_context():
        cache.get("outer")
        with inner_app.app_context():
            inner_cache.get("inner")
            assert len(leased(backend) + leased(inner_backend)) == (4 if same_app else 2)
        assert leased(backend) == ["flask_cache_outer"]
        with inner_app.app_context():
            pass
        assert leased(backend) == ["flask_cache_outer"]
        assert leased(inner_backend) == (["flask_cache_outer"] if same_app else [])
    assert leased(backend) == []


def test_what_an_outer_context_asks_for_after_an_inner_one_ends_with_the_outer_one(make_waiting_app):
    app, cache, backend = make_waiting_app()
    with app.app_context():
        with app.app_context():
            cache.get("inner")
        cache.get("outer")
        assert leased(backend) == ["flask_cache_outer"]
    assert leased(backend) == []


def test_the_test_client_in_a_view_leaves_the_view_its_lease(make_waiting_app):
    app, cache, backend = make_waiting_app()
    other_app, _, _ = make_waiting_app()
    other_app.add_url_rule("/", view_func=lambda: "inner")

    @app.get("/")
    @cache.cached()
    def view():
        text = other_app.test_client().get("/").text
        assert leased(backend) == ["flask_cache_view//"]
        return f"outer of {text}"

    assert app.test_client().get("/").text == "outer of inner"
    assert leased(backend) == []


def test_what_a_streamed_response_asks_for_it_holds_until_its_end(make_waiting_app):
    app, cache, backend = make_waiting_app()

    @app.get("/")
    def view():
        @flask.stream_with_context
        def parts():
            for name in "ab":
                cache.get(name)
                yield " ".join(leased(backend))

        return parts()

    assert app.test_client().get("/").text == "flask_cache_aflask_cache_a flask_cache_b"
    assert leased(backend) == []


HOW = {
    "raises": {},
    "aborts": {"response_filter": lambda response: not isinstance(response, flask.Response)},
    "filtered": {"response_filter": lambda response: False},
    "bypassed": {"unless": lambda: True},
    "over": {"timeout": -1},
    "unpicklable": {},
}


@pytest.mark.parametrize("how", HOW)
def test_when_a_request_ends_without_a_value_its_leases_end(make_waiting_app, how):
    app, cache, backend = make_waiting_app()
    app.debug = app.testing = False

    @app.get("/")
    @cache.cached(**HOW[how])
    def view():
        if how == "raises":
            raise Boom
        if how == "aborts":
            flask.abort(404)
        if how == "unpicklable":
            response = flask.make_response("page")
            response.lock = threading.Lock()
            return response
        return "page"

    for _ in range(2):
        status = app.test_client().get("/").status_code
        assert status == {"raises": 500, "aborts": 404}.get(how, 200)
        assert leased(backend) == []


def test_a_request_is_not_held_up_by_what_its_own_thread_asked_for_in_the_one_before(make_waiting_app):
    app, cache, _ = make_waiting_app()

    @app.get("/<name>")
    def view(name):
        return str(cache.get(name))

    client = app.test_client()
    assert seconds(lambda: [client.get(path) for path in ("/a", "/b", "/b", "/a")]) < PATIENCE


def test_two_apps_in_a_process_do_not_wait_for_each_other(make_waiting_app, in_thread):
    (app, cache, backend), (other_app, other_cache, other_backend) = make_waiting_app(), make_waiting_app()

    def ask():
        with other_app.app_context():
            return other_cache.get("key"), leased(other_backend)

    with app.app_context():
        cache.get("key")
        assert in_thread(ask).result(PATIENCE) == (None, ["flask_cache_key"])
        assert leased(other_backend) == []
        assert leased(backend) == ["flask_cache_key"]


def test_two_caches_of_an_app_each_have_their_leases_and_its_contexts_end_both(make_waiting_app):
    app, cache, backend = make_waiting_app()
    other_cache = flask_caching.Cache(app)
    other_backend = app.extensions["cache"][other_cache]
    with app.app_context():
        for each in (cache, other_cache):
            each.get("key")
        assert leased(backend) == leased(other_backend) == ["flask_cache_key"]
    assert leased(backend) == leased(other_backend) == []


def test_a_thread_without_an_app_context_has_its_leases_until_it_ends(cache, in_thread):
    holder = threading.Thread(target=cache.get, args=("key",))
    holder.start()
    holder.join()
    # Whoever asks next finds that out.
    assert in_thread(cache.get, "key").result(PATIENCE) is None


# Views and functions.


def visit_together(together, app, path):
    return together(lambda number: app.test_client().get(path).text)


def test_however_many_ask_for_a_view_it_runs_once(make_waiting_app, together, calls):
    app, cache, backend = make_waiting_app()

    @app.get("/<name>")
    @cache.cached(timeout=60)
    def view(name):
        calls[name] += 1
        assert until(lambda: waiting(backend) == THREADS - 1)
        return f"{name} {calls[name]}"

    assert visit_together(together, app, "/a") == ["a 1"] * THREADS
    engine(backend).touch("flask_cache_view//a", 0.001)
    time.sleep(0.01)
    assert visit_together(together, app, "/a") == ["a 2"] * THREADS
    assert engine(backend).stats().coalesced == 2 * (THREADS - 1)


def test_however_many_ask_for_an_async_view_it_runs_once(make_waiting_app, together, calls):
    app, cache, backend = make_waiting_app()

    @app.get("/")
    @cache.cached(timeout=60)
    async def view():
        calls["view"] += 1
        assert until(lambda: waiting(backend) == THREADS - 1)
        return f"page {calls['view']}"

    assert visit_together(together, app, "/") == ["page 1"] * THREADS


@pytest.mark.parametrize("asks", [False, True])
def test_the_end_of_the_request_of_an_async_view_that_raises_ends_its_leases(make_waiting_app, asks):
    app, cache, backend = make_waiting_app()
    app.debug = app.testing = False

    @app.get("/")
    @cache.cached()
    async def view():
        if asks:
            # As the task that it is.
            cache.get("other")
        raise Boom

    for _ in range(3):
        assert app.test_client().get("/").status_code == 500
        assert leased(backend) == []


def test_what_an_async_view_has_done_in_threads_does_not_wait_for_its_own_request(make_waiting_app):
    app, cache, _ = make_waiting_app(5)

    @app.get("/<name>")
    @cache.cached()
    async def view(name):
        # As the task that it is, which from here on has no lease of its own.
        cache.get("other")
        cache.set("other", 1)
        return str(await asyncio.to_thread(cache.get, f"view//{name}"))

    client = app.test_client()
    for name in "ab":
        assert seconds(lambda name=name: client.get(f"/{name}")) < 4
        assert client.get(f"/{name}").text == "None"
        cache.delete("other")


@pytest.mark.parametrize("prefix", ["flask_cache_", "", "shop:"])
def test_however_many_call_a_memoized_function_it_runs_once_an_argument(make_waiting_app, together, calls, prefix):
    app, cache, backend = make_waiting_app(CACHE_KEY_PREFIX=prefix)

    @cache.memoize(timeout=60)
    def double(number):
        calls[number] += 1
        time.sleep(0.05)
        return 2 * number

    def call(number):
        with app.app_context():
            return double(number % 4)

    for rounds in (1, 2):
        assert together(call) == [2 * (number % 4) for number in range(THREADS)]
        assert calls == dict.fromkeys(range(4), rounds)
        for key in engine(backend).keys():
            engine(backend).touch(key, 0.001)
        time.sleep(0.01)


def test_the_version_of_a_memoized_function_is_made_once_and_is_everybodys(make_waiting_app, together, monkeypatch):
    app, cache, backend = make_waiting_app()
    versions, keys = [], set()
    double = cache.memoize(timeout=60)(lambda number: 2 * number)

    def make_version():
        assert until(lambda: waiting(backend) == THREADS - 1)
        versions.append("version")
        return f"version {len(versions)}"

    def call(number):
        with app.app_context():
            keys.add(double.make_cache_key(double.uncached, 1))

    monkeypatch.setattr(cache, "_memoize_make_version_hash", make_version)
    together(call)
    assert len(versions) == len(keys) == 1


@pytest.mark.parametrize("ends", ["value", "version"])
def test_a_memoized_function_runs_once_if_only_its_value_or_only_its_version_has_expired(
    make_waiting_app, together, calls, ends
):
    app, cache, backend = make_waiting_app()

    @cache.memoize(timeout=60)
    def compute():
        calls["compute"] += 1
        time.sleep(0.05)
        return "value"

    def call(number):
        with app.app_context():
            return compute()

    call(0)
    for key in engine(backend).keys():
        if key.endswith("_memver") == (ends == "version"):
            engine(backend).touch(key, 0.001)
    time.sleep(0.01)
    assert together(call) == ["value"] * THREADS
    assert calls["compute"] == 2


class Shop:
    def __init__(self, name, calls):
        self.name = name
        self.calls = calls

    def __repr__(self):
        return f"<Shop {self.name}>"

    def price(self, number):
        self.calls[self.name, number] += 1
        time.sleep(0.05)
        return f"{self.name} {number}"


def test_however_many_call_a_memoized_method_it_runs_once_an_instance(make_waiting_app, together, calls):
    app, cache, _ = make_waiting_app()
    price = cache.memoize(timeout=60)(Shop.price)
    shops = [Shop("a", calls), Shop("b", calls)]

    def call(number):
        with app.app_context():
            return price(shops[number % 2], 7)

    assert together(call) == ["a 7", "b 7"] * (THREADS // 2)
    assert calls == {("a", 7): 1, ("b", 7): 1}


def test_a_memoized_function_that_is_forgotten_while_it_runs_runs_once_more_and_that_is_what_is_kept(
    make_waiting_app, in_thread
):
    app, cache, backend = make_waiting_app()
    runs, go_on = [], [threading.Event(), threading.Event()]

    @cache.memoize(timeout=60)
    def compute():
        runs.append(1)
        run = len(runs)
        assert go_on[run - 1].wait(PATIENCE)
        return run

    def in_context(function, *args):
        with app.app_context():
            return function(*args)

    before = [in_thread(in_context, compute) for _ in range(3)]
    assert until(lambda: len(runs) == 1 and waiting(backend) == 2)
    in_context(cache.delete_memoized, compute)
    after = [in_thread(in_context, compute) for _ in range(3)]
    assert until(lambda: len(runs) == 2 and waiting(backend) == 4)
    go_on[1].set()
    assert [each.result(PATIENCE) for each in after] == [2] * 3
    go_on[0].set()
    assert [each.result(PATIENCE) for each in before] == [1] * 3
    assert in_context(compute) == 2


def test_forgetting_a_memoized_function_does_not_wait_for_who_computes_it(make_waiting_app, in_thread):
    app, cache, _ = make_waiting_app()
    running, go_on = threading.Event(), threading.Event()

    @cache.memoize(timeout=60)
    def compute(number):
        running.set()
        assert go_on.wait(PATIENCE)
        return number

    def in_context(function, *args):
        with app.app_context():
            return function(*args)

    first = in_thread(in_context, compute, 1)
    assert running.wait(PATIENCE)
    for forget in (cache.delete_memoized, cache.delete_memoized_verhash):
        in_thread(in_context, forget, compute).result(PATIENCE)
    in_thread(in_context, cache.delete_memoized, compute, 1).result(PATIENCE)
    go_on.set()
    assert first.result(PATIENCE) == 1


def test_functions_that_are_called_and_forgotten_by_many_all_the_time_never_wait_to_the_end(make_waiting_app, together):
    app, cache, backend = make_waiting_app()
    double = cache.memoize(timeout=60)(lambda number: 2 * number)

    def use(number):
        for step in range(20):
            with app.app_context():
                if number % 8 == 0:
                    cache.delete_memoized(double)
                assert double(step % 3) == 2 * (step % 3)
        return True

    start = time.perf_counter()
    assert together(use) == [True] * THREADS
    assert time.perf_counter() - start < LONG / 2
    assert leased(backend) == []


def test_a_memoized_function_that_calls_another_runs_each_once(make_waiting_app, together, calls):
    app, cache, _ = make_waiting_app()

    @cache.memoize(timeout=60)
    def inner():
        calls["inner"] += 1
        time.sleep(0.05)
        return "inner"

    @cache.memoize(timeout=60)
    def outer():
        calls["outer"] += 1
        return f"outer of {inner()}"

    def call(number):
        with app.app_context():
            return outer()

    assert together(call) == ["outer of inner"] * THREADS
    assert calls == {"inner": 1, "outer": 1}


def test_a_memoized_function_that_calls_itself_does_not_wait_for_itself(make_waiting_app, calls):
    app, cache, _ = make_waiting_app()

    @cache.memoize(timeout=60)
    def factorial(number):
        calls[number] += 1
        return number * factorial(number - 1) if number else 1

    with app.app_context():
        assert factorial(10) == 3628800
    assert set(calls.values()) == {1}


def test_a_memoized_none_is_computed_once_if_nones_are_cached(make_waiting_app, together, calls):
    app, cache, _ = make_waiting_app()

    @cache.memoize(timeout=60, cache_none=True)
    def compute():
        calls["compute"] += 1
        time.sleep(0.05)

    def call(number):
        with app.app_context():
            return compute()

    assert together(call) == [None] * THREADS
    assert calls["compute"] == 1


def test_however_many_render_a_cached_fragment_it_is_rendered_once(make_waiting_app, together, calls):
    app, _, backend = make_waiting_app()

    def compute():
        calls["fragment"] += 1
        assert until(lambda: waiting(backend) == THREADS - 1)
        return "computed"

    def render(number):
        with app.app_context():
            return flask.render_template_string("{% cache 60, 'name' %}{{ compute() }}{% endcache %}", compute=compute)

    assert together(render) == ["computed"] * THREADS
    assert calls["fragment"] == 1
