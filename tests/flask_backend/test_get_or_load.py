"""The app contexts of ``get_or_load``'s loaders. ``tests/backends`` tests its options."""

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


class Loads:
    """A loader that notes where it ran: the thread, the app context, and what it finds there."""

    def __init__(self, value="value"):
        self.value = value
        self.threads, self.contexts, self.found = [], [], []

    def __call__(self):
        self.threads.append(threading.current_thread())
        self.contexts.append(app_ctx._get_current_object() if flask.has_app_context() else None)
        if flask.has_app_context():
            self.found.append((flask.current_app.name, flask.has_request_context(), flask.g.get("tenant")))
            flask.g.note = "the loader's"
        if isinstance(self.value, Exception):
            raise self.value
        return [self.value, colour.get(None)]


@pytest.fixture
def site(make_app, clock):
    """An app, its backend, and what its contexts were torn down with: the thread, the error and their ``g``'s note."""
    app, cache = make_app(CACHE_KEY_PREFIX="")
    torn_down = []

    @app.teardown_appcontext
    def tear_down(error):
        torn_down.append((threading.current_thread(), error, flask.g.get("note")))

    return app, app.extensions["cache"][cache], torn_down


def load_elsewhere(backend, load, how, clock):
    """Load in another thread, and wait until callers find the result."""
    if how == "timeout":
        if isinstance(load.value, Exception):
            with pytest.raises(Boom):
                backend.get_or_load("key", load, load_timeout=LONG)
        else:
            backend.get_or_load("key", load, load_timeout=LONG)
        return
    policy = {"refresh_ahead": 0.5} if how == "refresh" else {"grace": LONG}
    backend.get_or_load("key", lambda: "old", 10, **policy)
    clock.advance(9 if how == "refresh" else 10)
    assert backend.get_or_load("key", load, 10, **policy) == "old"
    assert until(lambda: engine(backend).stats().load_failures or backend.get("key") not in (None, "old"))


elsewhere = pytest.mark.parametrize("how", ["refresh", "stale", "timeout"])


@elsewhere
@pytest.mark.parametrize("error", [None, Boom()], ids=["value", "error"])
def test_a_loader_in_another_thread_has_an_app_context_of_its_own_that_is_torn_down_after_it(site, clock, how, error):
    """And neither the request, which is not safe to use in another thread, nor the ``g`` of its caller."""
    app, backend, torn_down = site
    load = Loads(error or "value")
    with flask.Flask("outer").app_context(), app.test_request_context("/page"):
        flask.g.tenant, flask.g.note = "acme", "the caller's"
        load_elsewhere(backend, load, how, clock)
        assert error or backend.get("key") == ["value", None]
        (thread,), (context,) = load.threads, load.contexts
        assert thread is not threading.current_thread()
        assert context is not app_ctx._get_current_object()
        assert load.found == [(app.name, False, None)]
        # Before the load had ended: the value was not available before its session had ended.
        assert torn_down == [(thread, error, "the loader's")]
        assert (flask.request.path, flask.g.note) == ("/page", "the caller's")
    assert torn_down[1:] == [(threading.current_thread(), None, "the caller's")]


@elsewhere
def test_a_loader_in_another_thread_has_the_context_variables_of_its_caller(site, clock, how):
    _, backend, torn_down = site
    load = Loads()

    def ask():
        colour.set("blue")
        load_elsewhere(backend, load, how, clock)

    contextvars.copy_context().run(ask)
    assert backend.get("key") == ["value", "blue"]
    # Without an app context of the caller, there is none.
    assert (load.contexts, torn_down) == ([None], [])


def test_a_loader_in_the_callers_thread_runs_in_the_callers_context(site):
    app, backend, torn_down = site
    load = Loads()
    with app.app_context():
        backend.get_or_load("a", load)
        backend.get_or_load("b", load, grace=LONG, refresh_ahead=0.5, negative_ttl=1)
        backend.get_or_load("c", load, -1, load_timeout=LONG)
        assert load.contexts == [app_ctx._get_current_object()] * 3
        assert torn_down == []


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
