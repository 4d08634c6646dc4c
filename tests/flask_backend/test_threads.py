"""The threads that an app starts, in a process of its own."""

from tests.scripts import run

SCRIPT = """
import threading
import flask, flask_caching

def threads():
    return [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]

def make_app(**options):
    app = flask.Flask("app")
    app.debug = True
    options = {"jitter": 0, **options}
    app.config.update(CACHE_TYPE="wheelcache.flask_backend.WheelCache", CACHE_OPTIONS=options)
    cache = flask_caching.Cache(app)
    return cache, app.extensions["cache"][cache]

# Also with a line a minute.
cache, _ = make_app()
cache.cached()(len)
cache.memoize()(len)
assert threads() == []
_, backend = make_app(figures_dir=None)
backend.get_many("for ever", "missing")
backend.clear()
_, another = make_app()
assert threads() == []
backend.set("for ever", 1, 0)
print(*threads())
another.set("timed", 1, 60)
assert len(threads()) == 1
"""


def test_the_wheel_thread_starts_with_the_first_write_and_not_with_the_app():
    assert run(SCRIPT) == "wheelcache-wheel\n"
