"""The options of ``get_or_load`` other than the timeout, and app contexts of loaders in other threads."""

import contextvars
import threading

import flask
import pytest
from flask.globals import app_ctx

from tests.caches import is_leased
from tests.engines import engine
from tests.guests import needs
from tests.waiting import PATIENCE, until

LONG = 60

colour = contextvars.ContextVar("colour")


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
    """A loader that counts, and notes where it ran."""

    def __init__(self, value="value"):
        self.value = value
        self.count = 0
        self.threads = []
        self.contexts = []

    @property
    def apps(self):
        return [context and context.app for context in self.contexts]

    def __call__(self):
        self.count += 1
        self.threads.append(threading.current_thread())
        self.contexts.append(app_context())
        if flask.has_app_context():
            flask.g.note = self.count
        if isinstance(self.value, Exception):
            raise self.value
        return [self.value, self.count]


@pytest.fixture
def site(make_app, clock):
    """An app, its backend, and what its contexts were torn down with: the thread, the error and their ``g``'s note."""
    app, cache = make_app(CACHE_KEY_PREFIX="")
    torn_down = []

    @app.teardown_appcontext
    def tear_down(error):
        torn_down.append((threading.current_thread(), error, flask.g.get("note")))

    return app, app.extensions["cache"][cache], torn_down


# App contexts.


def is_over(backend, load):
    """Return whether ``load`` has run in the background, and callers find its result."""
    figures = engine(backend).stats()
    return load.count == 1 and (backend.get("key") not in (None, "old") or figures.load_failures == 1)


def load_by_refresh(backend, load, clock):
    backend.set("key", "old", 10)
    clock.advance(9)
    assert backend.get_or_load("key", load, 10, refresh_ahead=0.5) == "old"
    assert until(lambda: is_over(backend, load))


def load_by_stale(backend, load, clock):
    backend.get_or_load("key", lambda: "old", 10, grace=LONG)
    clock.advance(10)
    assert backend.get_or_load("key", load, 10, grace=LONG) == "old"
    assert until(lambda: is_over(backend, load))


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
@pytest.mark.parametrize("error", [None, Boom()], ids=["value", "error"])
def test_a_loader_in_another_thread_has_an_app_context_of_its_own_that_is_torn_down_after_it(
    site, clock, load_elsewhere, error
):
    app, backend, torn_down = site
    load = Loads(error or "value")
    with app.app_context():
        flask.g.note = "the caller's"
        load_elsewhere(backend, load, clock)
        assert error or backend.get("key") == ["value", 1]
        (thread,), (context,) = load.threads, load.contexts
        assert thread is not threading.current_thread()
        assert load.apps == [app]
        assert context is not app_context()
        # Before the load had ended: the value was not available before its session had ended.
        assert torn_down == [(thread, error, 1)]
        assert flask.g.note == "the caller's"
    assert torn_down[1:] == [(threading.current_thread(), None, "the caller's")]


@elsewhere
def test_a_loader_in_another_thread_has_neither_the_request_nor_the_g_of_its_caller(site, clock, load_elsewhere):
    """The request is not safe to use in another thread, and is over before a refresh begins."""
    app, backend, _ = site
    found = []

    class Look(Loads):
        def __call__(self):
            found.append((flask.has_request_context(), flask.g.get("tenant"), flask.current_app.name))
            with pytest.raises(RuntimeError, match="Working outside of request context"):
                flask.url_for("static", filename=flask.request.path)
            return super().__call__()

    with app.test_request_context("/page"):
        flask.g.tenant = "acme"
        load_elsewhere(backend, Look(), clock)
        assert (flask.request.path, flask.g.tenant) == ("/page", "acme")
    assert found == [(False, None, app.name)]


@elsewhere
def test_a_loader_in_another_thread_has_the_other_context_variables_of_its_caller(site, clock, load_elsewhere):
    _, backend, _ = site
    found = []

    class Look(Loads):
        def __call__(self):
            found.append(colour.get())
            return super().__call__()

    def ask():
        colour.set("blue")
        load_elsewhere(backend, Look(), clock)

    contextvars.copy_context().run(ask)
    assert found == ["blue"]


@elsewhere
def test_what_is_loaded_in_another_thread_is_pickled_in_its_context_and_without_one_there_is_none(
    site, clock, load_elsewhere
):
    app, backend, torn_down = site
    load = Loads()
    load_elsewhere(backend, load, clock)
    assert load.contexts == [None]
    assert torn_down == []
    backend.clear()
    with app.app_context():
        load_elsewhere(backend, Loads(Answer("answer")), clock)
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
        assert until(lambda: backend.get("inner") == ["value", 1])
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
    # The log line comes after the end of the load.
    assert until(lambda: "Boom" in caplog.text)


@needs("fill_waits")
def test_the_context_of_a_loader_takes_its_own_leases_with_it_and_leaves_its_caller_theirs(make_app, in_thread):
    app, cache = make_app(CACHE_KEY_PREFIX="", CACHE_OPTIONS={"fill_wait": LONG})
    backend = app.extensions["cache"][cache]

    def leased():
        return [key for key in ("page", "another") if is_leased(engine(backend), key)]

    def load():
        assert cache.get("another") is None
        assert leased() == ["page", "another"]
        return "value"

    with app.app_context():
        cache.get("page")
        assert backend.get_or_load("key", load, load_timeout=LONG) == "value"
        assert leased() == ["page"]
        # Another thread may fill the keys that the loader has missed.
        assert in_thread(backend.get, "another").result(PATIENCE) is None
    assert leased() == []
