"""A Django site and a Flask site for gunicorn whose state is in their cache.

Environment: ``SITE``, as JSON: the framework, the class of the cache, whether it has sessions, and where to publish.
``python -m tests.watch.servers.separate_site ...`` is the ``manage.py`` of the Django site.
"""

import json
import os
import sys

GIVEN = json.loads(os.environ["SITE"])
NAMES = [f"token:{number}" for number in range(60)]


def answer(cache, session, action):
    """Set tokens, look them up, or count in the session. Return the process and the number."""
    if action == "set":
        for name in NAMES:
            cache.set(name, 1, 300)
    elif action == "get":
        return {"pid": os.getpid(), "found": sum(cache.get(name) is not None for name in NAMES)}
    elif action == "count":
        session["count"] = session.get("count", 0) + 1
        return {"pid": os.getpid(), "count": session["count"]}
    return {"pid": os.getpid()}


def make_django():
    from django.conf import settings
    from django.core.cache import cache
    from django.http import JsonResponse
    from django.urls import include, path

    options = {"FIGURES_DIR": GIVEN["figures"]}
    settings.configure(
        ALLOWED_HOSTS=["*"],
        CACHES={"default": {"BACKEND": f"wheelcache.django_backend.{GIVEN['backend']}", "OPTIONS": options}},
        INSTALLED_APPS=["django.contrib.sessions", "wheelcache.django_backend"],
        MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
        ROOT_URLCONF=__name__,
        SECRET_KEY=GIVEN["figures"],
        SESSION_ENGINE=f"django.contrib.sessions.backends.{'cache' if GIVEN['sessions'] else 'signed_cookies'}",
        WHEELCACHE_DASHBOARD_GUARD=lambda request: {"view_figures"},
    )

    def view(request, action):
        return JsonResponse(answer(cache, request.session, action))

    return [path("wheelcache/", include("wheelcache.watch.urls")), path("<action>", view)]


def make_flask():
    import flask
    import flask_caching

    from tests.servers import cached_sessions
    from wheelcache.flask_backend import dashboard

    app = flask.Flask("separate", instance_path=GIVEN["figures"])
    app.config.update(
        CACHE_TYPE=f"wheelcache.flask_backend.{GIVEN['backend']}",
        CACHE_OPTIONS={"figures_dir": GIVEN["figures"]},
        SECRET_KEY="not secret",
    )
    cache = cached_sessions.cache if GIVEN["sessions"] else flask_caching.Cache()
    cache.init_app(app)
    if GIVEN["sessions"]:
        app.session_interface = cached_sessions.CachingSessionInterface()
    app.register_blueprint(dashboard(lambda: {"view_figures"}))

    @app.get("/<action>")
    def view(action):
        return answer(cache, flask.session, action)

    return app


def publish_often():
    from tests.watch import often

    often.publish_often()


if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    urlpatterns = make_django()
    execute_from_command_line(sys.argv)
elif GIVEN["framework"] == "django":
    urlpatterns = make_django()
    from django.core.wsgi import get_wsgi_application

    publish_often()
    application = get_wsgi_application()
else:
    publish_often()
    application = make_flask()
