"""Flask-Caching's decorators and its Jinja tag on real Flask apps: timeouts, figures, several apps.

The decorators are tested by Flask-Caching's own suite, which runs on the backend (``tests/conformance``).
"""

from datetime import timedelta

import flask
import pytest
from flask_caching import CachedResponse

from tests.engines import engine
from tests.flask_backend.conftest import OF_FLASK_CACHING_2_5
from tests.scripts import run_python


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [
        *((None, 300), (0, None), (7, 7), (timedelta(minutes=1), 60)),
        pytest.param("50", 50, marks=OF_FLASK_CACHING_2_5),
    ],
)
def test_the_timeout_of_a_view_is_that_of_its_response_or_the_decorator_or_the_default(
    make_app, clock, timeout, seconds
):
    app, cache = make_app(CACHE_KEY_PREFIX="")
    app.add_url_rule("/", "view", cache.cached(timeout=timeout)(lambda: "page"))
    own = cache.cached(timeout=timeout)(lambda: CachedResponse(flask.make_response("page"), timeout=20))
    app.add_url_rule("/own", "own", own)
    assert [app.test_client().get(url).text for url in ("/", "/own")] == ["page", "page"]
    engine_ = engine(app.extensions["cache"][cache])
    assert (engine_.expires_in("view//"), engine_.expires_in("view//own")) == (seconds, 20)


@pytest.mark.compiled
def test_views_fragments_and_other_keys_are_in_groups(make_app):
    app, cache = make_app(CACHE_KEY_PREFIX="shop:")
    app.add_url_rule("/", "view", cache.cached()(lambda: "page"))
    source = "{% cache 10, 'side', 'a:b' %}{% endcache %}"
    app.add_url_rule("/fragment", "fragment", lambda: flask.render_template_string(source))
    for path in ("/", "/fragment"):
        app.test_client().get(path)
    with app.app_context():
        for key in ("user:7", "plain"):
            cache.get(key)
    found = engine(cache.cache).stats().groups
    assert {name for name, group in found.items() if group.misses} == {"view", "fragments", "user", ""}


# Apps.


def test_with_an_older_flask_caching_our_cache_is_an_import_error_that_names_the_version():
    script = "import flask_caching as it; vars(it).pop('cache_view_hit', 0); from wheelcache.flask_backend import Cache"
    done = run_python("-c", script)
    assert done.stderr.endswith("ImportError: wheelcache.flask_backend.Cache needs Flask-Caching 2.5 or newer\n")
