"""What ``get_or_load`` takes beside a timeout, and the app contexts of loaders that run in other threads."""

import threading

import flask
import pytest
from cachelib.serializers import JSONSerializer
from flask.globals import app_ctx

from tests.engines import engine
from tests.waiting import PATIENCE, until
from wheelcache import LoadTimeout

LONG = 60


class Boom(Exception):
    pass


class Answer:
    """Can be pickled where there is an app context."""

    def __init__(self, text):
        self.text = text

    def __getstate__(self):
        return {"text": f"{self.text} of {flask.current_app.name}"}


def app_context():
    return app_ctx._get_current_object() if flask.has_app_context() else None


class Loads:
    """A loader that counts, and notes where it ran. With ``hold`` it goes on when it is released."""

    def __init__(self, value="value"):
        self.value = value
        self.count = 0
        self.threads = []
        self.contexts = []
        self.apps = []
        self.released = threading.Event()
        self.released.set()

    def __call__(self):
        self.count += 1
        self.threads.append(threading.current_thread())
        self.contexts.append(app_context())
        self.apps.append(flask.current_app._get_current_object() if flask.has_app_context() else None)
        if flask.has_app_context():
            flask.g.note = self.count
        assert self.released.wait(PATIENCE)
        if isinstance(self.value, Exception):
            raise self.value
        return [self.value, self.count] if self.value is not None else None


@pytest.fixture
def site(make_app, clock):
    """An app, its backend, and what its contexts were torn down with: the thread, the error and their ``g``'s note."""
    app, cache = make_app(CACHE_KEY_PREFIX="")
    torn_down = []

    @app.teardown_appcontext
    def tear_down(error):
        torn_down.append((threading.current_thread(), error, flask.g.get("note")))

    return app, app.extensions["cache"][cache], torn_down


def is_idle(backend):
    return not engine(backend)._refreshing and not engine(backend)._flights.in_progress


WRONG = [
    ("grace", 0, "grace must be a number of seconds > 0, or None, not 0"),
    ("grace", "60", "grace must be a number of seconds > 0, or None, not '60'"),
    ("refresh_ahead", 1, "refresh_ahead must be a fraction, 0 < fraction < 1, or None, not 1"),
    ("fail_safe", "yes", "fail_safe must be True or False, not 'yes'"),
    ("fail_safe", True, "fail_safe needs grace"),
    ("load_timeout", 0, "load_timeout must be a number of seconds > 0, or None, not 0"),
    ("load_timeout", True, "load_timeout must be a number of seconds > 0, or None, not True"),
    ("negative_ttl", -1, "negative_ttl must be a number of seconds > 0, or None, not -1"),
]


@pytest.mark.parametrize(("option", "wrong", "message"), WRONG, ids=[f"{name}={wrong!r}" for name, wrong, _ in WRONG])
@pytest.mark.parametrize("state", ["missing", "there", "over at once"])
def test_a_wrong_option_is_an_error_that_names_it_as_it_was_written(make, option, wrong, message, state):
    cache = make()
    if state == "there":
        cache.set("key", "value")
    with pytest.raises((TypeError, ValueError)) as refused:
        cache.get_or_load("key", pytest.fail, -1 if state == "over at once" else 10, **{option: wrong})
    assert str(refused.value).startswith(message)


def test_an_option_of_the_engine_that_is_called_otherwise_here_is_unknown(make):
    with pytest.raises(TypeError, match="ttl"):
        make().get_or_load("key", pytest.fail, ttl=1)


# Stale values and refreshes.


def test_a_value_within_its_grace_is_served_while_one_thread_loads_it_anew(make, clock):
    cache, load = make(), Loads()
    assert cache.get_or_load("key", load, 10, grace=LONG) == ["value", 1]
    clock.advance(10)
    load.released.clear()
    stale = [cache.get_or_load("key", load, 10, grace=LONG) for _ in range(3)]
    assert stale == [["value", 1]] * 3
    # Each his own, and for nobody else is it there.
    assert len(set(map(id, stale))) == 3
    assert (cache.get("key"), cache.has("key"), cache.get_many("key")) == (None, False, [None])
    load.released.set()
    assert until(lambda: cache.get("key") == ["value", 2])
    assert load.threads[1] is not threading.current_thread()


def test_past_its_grace_a_value_is_loaded_by_who_asks(make, clock):
    cache, load = make(), Loads()
    cache.get_or_load("key", load, 10, grace=LONG)
    clock.advance(10 + LONG)
    assert cache.get_or_load("key", load, 10, grace=LONG) == ["value", 2]
    assert load.threads == [threading.current_thread()] * 2


def test_a_hit_past_a_fraction_of_the_timeout_has_the_value_loaded_anew(make, clock):
    cache, load = make(), Loads()
    for advance, count in ((0, 1), (7, 1), (1.5, 1)):
        clock.advance(advance)
        assert cache.get_or_load("key", load, 10, refresh_ahead=0.8) == ["value", count]
    assert until(lambda: cache.get("key") == ["value", 2])
    assert until(lambda: is_idle(cache))
    clock.advance(7)
    assert cache.get_or_load("key", load, 10, refresh_ahead=0.8) == ["value", 2]
    assert load.count == 2


def test_with_fail_safe_a_stale_value_is_served_on_when_loading_it_anew_fails(make, clock, caplog):
    cache, load = make(), Loads()
    options = {"grace": LONG, "fail_safe": True}
    cache.get_or_load("key", load, 10, **options)
    clock.advance(10)
    load.value = Boom()
    assert cache.get_or_load("key", load, 10, **options) == ["value", 1]
    assert until(lambda: load.count == 2 and is_idle(cache))
    assert cache.get_or_load("key", load, 10, **options) == ["value", 1]
    # The next try waits.
    assert load.count == 2
    assert "Loading 'key' into the cache" in caplog.text


def test_without_fail_safe_a_refresh_that_fails_ends_the_stale_value(make, clock):
    cache, load = make(), Loads()
    cache.get_or_load("key", load, 10, grace=LONG)
    clock.advance(10)
    load.value = Boom()
    assert cache.get_or_load("key", load, 10, grace=LONG) == ["value", 1]
    assert until(lambda: load.count == 2 and is_idle(cache))
    with pytest.raises(Boom):
        cache.get_or_load("key", load, 10, grace=LONG)


def test_who_waits_longer_than_load_timeout_goes_on_and_what_is_loaded_is_kept(make):
    cache, load = make(), Loads()
    load.released.clear()
    with pytest.raises(LoadTimeout, match=r"the loader of 'key' takes longer than 0\.05 s"):
        cache.get_or_load("key", load, load_timeout=0.05)
    load.released.set()
    assert until(lambda: cache.get("key") == ["value", 1])
    assert cache.get_or_load("key", load, load_timeout=LONG) == ["value", 1]


def test_who_waits_longer_than_load_timeout_gets_the_stale_value(make, clock):
    cache, load = make(), Loads()
    cache.get_or_load("key", load, 10, grace=LONG, load_timeout=LONG)
    clock.advance(10)
    load.released.clear()
    assert cache.get_or_load("key", load, 10, grace=LONG, load_timeout=0.05) == ["value", 1]
    load.released.set()
    assert until(lambda: cache.get("key") == ["value", 2])


@pytest.mark.parametrize("serializer", [None, JSONSerializer()], ids=["pickle", "json"])
def test_that_there_is_nothing_is_remembered_for_negative_ttl(make, clock, serializer):
    cache, load = make(), Loads(None)
    if serializer:
        cache.serializer = serializer
    for _ in range(3):
        assert cache.get_or_load("key", load, 100, grace=LONG, negative_ttl=5) is None
        assert cache.has("key")
    assert load.count == 1
    clock.advance(5)
    load.value = "there by now"
    assert cache.get_or_load("key", load, 100, negative_ttl=5) == ["there by now", 2]
    clock.advance(99)
    assert cache.get_or_load("key", load, 100, negative_ttl=5) == ["there by now", 2]
    assert load.count == 2


def test_a_timeout_that_is_over_at_once_stores_nothing_whatever_else_is_asked_for(make):
    cache, load = make(), Loads()
    options = {"grace": LONG, "refresh_ahead": 0.5, "fail_safe": True, "load_timeout": LONG, "negative_ttl": 5}
    for count in (1, 2):
        assert cache.get_or_load("key", load, -1, **options) == ["value", count]
        assert cache.has("key") is False
    cache.set("key", "there", 10)
    assert cache.get_or_load("key", load, -1, **options) == "there"
    assert load.count == 2


def test_a_timeout_of_zero_is_never_and_needs_no_refresh(make, clock):
    cache, load = make(), Loads()
    for _ in range(3):
        assert cache.get_or_load("key", load, 0, grace=LONG, refresh_ahead=0.5) == ["value", 1]
        clock.advance(1e6)
    assert load.count == 1


# App contexts.


def load_by_refresh(backend, load, clock):
    backend.set("key", "old", 10)
    clock.advance(9)
    assert backend.get_or_load("key", load, 10, refresh_ahead=0.5) == "old"
    assert until(lambda: load.count and is_idle(backend))


def load_by_stale(backend, load, clock):
    backend.get_or_load("key", lambda: "old", 10, grace=LONG)
    clock.advance(10)
    assert backend.get_or_load("key", load, 10, grace=LONG) == "old"
    assert until(lambda: load.count and is_idle(backend))


def load_with_timeout(backend, load, clock):
    if isinstance(load.value, Exception):
        with pytest.raises(Boom):
            backend.get_or_load("key", load, load_timeout=LONG)
    else:
        backend.get_or_load("key", load, load_timeout=LONG)


elsewhere = pytest.mark.parametrize(
    "load_elsewhere", [load_by_refresh, load_by_stale, load_with_timeout], ids=["refresh", "stale", "timeout"]
)


@elsewhere
def test_a_loader_in_another_thread_has_an_app_context_of_its_own_that_is_torn_down_after_it(
    site, clock, load_elsewhere
):
    app, backend, torn_down = site
    load = Loads()
    with app.app_context():
        flask.g.note = "the caller's"
        load_elsewhere(backend, load, clock)
        assert backend.get("key") == ["value", 1]
        (thread,), (context,) = load.threads, load.contexts
        assert thread is not threading.current_thread()
        assert load.apps == [app]
        assert context is not app_context()
        # Before it landed: what it brings was not to be had before its session was gone.
        assert torn_down == [(thread, None, 1)]
        assert flask.g.note == "the caller's"
    assert torn_down[1:] == [(threading.current_thread(), None, "the caller's")]


@elsewhere
def test_a_loader_that_raises_in_another_thread_has_its_context_torn_down_with_the_error(site, clock, load_elsewhere):
    app, backend, torn_down = site
    load = Loads(Boom())
    with app.app_context():
        load_elsewhere(backend, load, clock)
        assert torn_down == [(load.threads[0], load.value, 1)]


@elsewhere
def test_without_an_app_context_a_loader_in_another_thread_has_none(site, clock, load_elsewhere):
    _, backend, torn_down = site
    load = Loads()
    load_elsewhere(backend, load, clock)
    assert load.contexts == [None]
    assert torn_down == []


@elsewhere
def test_what_is_loaded_in_another_thread_is_pickled_in_its_context(site, clock, load_elsewhere):
    app, backend, _ = site
    load = Loads(Answer("answer"))
    with app.app_context():
        load_elsewhere(backend, load, clock)
    assert backend.get("key")[0].text == f"answer of {app.name}"


def test_of_two_apps_a_loader_in_another_thread_has_the_callers(make_app, clock):
    apps = [make_app(name=name) for name in ("outer", "inner")]
    (outer, _), (inner, inner_cache) = apps
    load = Loads()
    with outer.app_context(), inner.app_context():
        load_by_refresh(inner.extensions["cache"][inner_cache], load, clock)
    assert load.apps == [inner]


def test_a_loader_in_the_callers_thread_runs_in_the_callers_context(site):
    app, backend, torn_down = site
    load = Loads()
    with app.app_context():
        backend.get_or_load("a", load)
        backend.get_or_load("b", load, grace=LONG, refresh_ahead=0.5, negative_ttl=1)
        backend.get_or_load("c", load, -1, load_timeout=LONG)
        assert load.contexts == [app_context()] * 3
        assert torn_down == []


def test_a_loader_that_a_loader_has_run_in_the_background_has_a_context_of_its_own_whatever_thread_it_gets(site, clock):
    app, backend, torn_down = site
    outer_contexts = []
    inner = Loads()
    backend.set("inner", "old", 10)
    backend.set("outer", "old", 10)
    clock.advance(9)

    def outer():
        outer_contexts.append(app_context())
        return backend.get_or_load("inner", inner, 10, refresh_ahead=0.5)

    with app.app_context():
        backend.get_or_load("outer", outer, 10, refresh_ahead=0.5)
        assert until(lambda: inner.count == 1 and is_idle(backend))
        assert inner.apps == [app]
        assert len({id(context) for context in (app_context(), *outer_contexts, *inner.contexts)}) == 3
        assert until(lambda: len(torn_down) == 2)


def test_a_teardown_that_raises_is_a_load_that_failed(site, clock, caplog):
    app, backend, _ = site

    @app.teardown_appcontext
    def tear_down(error):
        if threading.current_thread() is not threading.main_thread():
            raise Boom

    with app.app_context():
        load_by_refresh(backend, Loads(), clock)
        assert backend.get("key") == "old"
    assert "Boom" in caplog.text


def test_the_context_of_a_loader_takes_its_own_leases_with_it_and_leaves_its_caller_his(make_app):
    app, cache = make_app(CACHE_KEY_PREFIX="", CACHE_OPTIONS={"fill_wait": LONG})
    backend = app.extensions["cache"][cache]

    def leased():
        return list(engine(backend)._leases.in_force)

    def load():
        assert cache.get("another") is None
        assert leased() == ["page", "another"]
        return "value"

    with app.app_context():
        cache.get("page")
        assert backend.get_or_load("key", load, load_timeout=LONG) == "value"
        assert leased() == ["page"]
    assert leased() == []


def test_requests_served_by_a_stale_value_have_it_loaded_anew_for_the_next(site, clock):
    app, backend, torn_down = site
    load = Loads()

    @app.get("/")
    def view():
        return {"found": backend.get_or_load("key", load, 10, grace=LONG)}

    client = app.test_client()
    assert client.get("/").json == {"found": ["value", 1]}
    clock.advance(10)
    assert client.get("/").json == {"found": ["value", 1]}
    assert until(lambda: backend.get("key") == ["value", 2])
    assert client.get("/").json == {"found": ["value", 2]}
    assert len(set(load.contexts)) == 2
    assert until(lambda: len(torn_down) == 4)
