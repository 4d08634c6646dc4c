"""``snapshot`` in Flask: views and apps. The rest is in ``tests/backends``."""

import flask
import flask_caching
import pytest

from tests.engines import engine, noted, save_and_close
from tests.flask_backend.conftest import BACKEND


@pytest.fixture
def place(tmp_path):
    return tmp_path / "snapshots"


def test_what_was_cached_and_memoized_is_not_computed_again(place):
    computed = []

    def restarted():
        app = flask.Flask("site")
        app.config.from_mapping(CACHE_TYPE=BACKEND, CACHE_OPTIONS={"snapshot": str(place), "figures_dir": None})
        cache = flask_caching.Cache(app)
        backend = noted(app.extensions["cache"][cache])

        @app.get("/")
        @cache.cached(60)
        def view():
            computed.append("view")
            return "page"

        @cache.memoize(60)
        def square(number):
            computed.append(number)
            return [number * number]

        with app.app_context():
            assert square(3) == [9]
        assert app.test_client().get("/").text == "page"
        save_and_close(engine(backend))

    restarted()
    restarted()
    assert sorted(map(str, computed)) == ["3", "view"]


def test_two_caches_of_an_app_that_would_load_each_other_s_entries_are_an_error(place):
    app = flask.Flask("site")

    def config(**options):
        return {"CACHE_TYPE": BACKEND, "CACHE_OPTIONS": {"snapshot": str(place), "figures_dir": None, **options}}

    flask_caching.Cache(app, config=config())
    flask_caching.Cache(app, config=config(name="other"))
    with pytest.raises(ValueError, match=r"name must be different .* not 'site' for two"):
        flask_caching.Cache(app, config=config())
