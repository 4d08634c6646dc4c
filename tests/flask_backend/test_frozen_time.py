"""Time that tests move, in what Flask-Caching builds on a cache. The rest is in ``tests/backends``."""

import pytest

from tests.time_travel import FAR, LIBRARIES


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)
def test_a_cached_view_and_a_memoized_function_expire(make_app, library):
    app, cache = make_app()
    calls = []

    @app.route("/page")
    @cache.cached(timeout=300)
    def page():
        calls.append("page")
        return str(len(calls))

    @cache.memoize(timeout=300)
    def function(number):
        calls.append(number)
        return number

    client = app.test_client()
    with library.freeze(FAR) as time_, app.app_context():
        assert client.get("/page").data == client.get("/page").data == b"1"
        assert function(7) == function(7) == 7
        time_.shift(299)
        client.get("/page")
        function(7)
        assert calls == ["page", 7]
        time_.shift(1)
        client.get("/page")
        function(7)
        assert calls == ["page", 7, "page", 7]
