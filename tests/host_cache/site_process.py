"""A process of a site on a HostCache. It calls what it reads from its standard input: see ``SiteProcess``."""

import asyncio
import os
import pickle
import subprocess
import sys
from contextlib import ExitStack
from importlib import import_module
from types import SimpleNamespace

from tests.scripts import ROOT
from wheelcache.runtime.request_scope import end_request

QUIET = {"jitter": 0, "figures_dir": None}


class SiteProcess:
    """``process.get("key")`` calls the method of the cache, or the function of this module, in the process.

    Args:
        framework: "django" or "flask".
        folder: the folder of the entries and of the database.
        options: the options of the cache.
    """

    def __init__(self, framework, folder, **options):
        command = "import sys; from tests.host_cache import site_process; site_process.serve(*sys.argv[1:])"
        # Each process of a test run would have entries of its own.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", command, framework, str(folder), repr({**QUIET, **options})],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __getattr__(self, name):
        def call(*args, **kwargs):
            pickle.dump((name, args, kwargs), self._process.stdin)
            self._process.stdin.flush()
            error, found = pickle.load(self._process.stdout)  # of a process of this test
            if error is not None:
                raise AssertionError(error)
            return found

        return call

    def close(self):
        self._process.kill()
        self._process.communicate()


def serve(framework, folder, options):
    output = os.fdopen(os.dup(1), "wb")
    # Prints are no results.
    os.dup2(2, 1)
    site = {"django": DjangoSite, "flask": FlaskSite}[framework](folder, eval(options))
    while True:
        try:
            name, args, kwargs = pickle.load(sys.stdin.buffer)  # of the test
        except EOFError:
            return
        try:
            owner = site if hasattr(site, name) else site.cache
            found = None, getattr(owner, name)(*args, **kwargs)
        except Exception as error:
            found = repr(error), None
        end_request()
        pickle.dump(found, output)
        output.flush()


calls = []


def double(number):
    calls.append(number)
    return [2 * number]


class Site:
    """
    Attributes:
        cache: the backend.
        double: a memoized function.
    """

    def __init__(self):
        self._open = ExitStack()
        self._locks = {}

    def runs(self):
        """Return the arguments with which the memoized function ran since the last call."""
        found = calls[:]
        calls.clear()
        return found

    def run(self, name, *args, **kwargs):
        """Call a coroutine function of the cache."""
        return asyncio.run(getattr(self.cache, name)(*args, **kwargs))

    def load(self, key, value):
        """Return the value of a key, which is ``value`` if it is computed here."""
        return getattr(self.cache, self.loads)(key, lambda: value)

    def end(self):
        """Commit the transaction."""
        self._open.close()


class DjangoSite(Site):
    loads = "get_or_set"

    def __init__(self, folder, options):
        super().__init__()
        import django
        from django.conf import settings

        spelled = {name.upper(): value for name, value in options.items()}
        host = {"BACKEND": "wheelcache.django_backend.HostCache", "LOCATION": f"{folder}/entries", "OPTIONS": spelled}
        settings.configure(
            CACHES={"default": host},
            DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{folder}/database"}},
            INSTALLED_APPS=["django.contrib.sessions"],
            ALLOWED_HOSTS=["testserver"],
            SECRET_KEY="not secret",
            TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
            USE_TZ=True,
        )
        django.setup()
        from django.core.cache import cache
        from django.core.management import call_command

        from wheelcache.django_backend import memoize

        call_command("migrate", verbosity=0)
        self.cache = cache
        self.double = memoize(60)(double)
        self.forget, self.forget_all = self.double.cache_delete, self.double.cache_clear

    def begin(self):
        from django.db import transaction

        self._open.enter_context(transaction.atomic())

    def session(self, backend, key=None):
        engine = import_module(f"django.contrib.sessions.backends.{backend}")
        return engine.SessionStore(key)

    def save_session(self, backend, key=None, **values):
        session = self.session(backend, key)
        session.update(values)
        session.save()
        return session.session_key

    def read_session(self, backend, key):
        return dict(self.session(backend, key).items())

    def end_session(self, backend, key):
        self.session(backend, key).flush()

    def fragment(self, value):
        from django.template import engines

        text = "{% load cache %}{% cache 60 name %}{{ value }}{% endcache %}"
        return engines["django"].from_string(text).render({"value": value})

    def page(self, path, value):
        from django.http import HttpResponse
        from django.test import RequestFactory
        from django.views.decorators.cache import cache_page

        view = cache_page(60)(lambda request: HttpResponse(value))
        return view(RequestFactory().get(path)).content.decode()

    def acquire(self, name, **options):
        return self._locks.setdefault(name, self.cache.lock(name, **options)).acquire(blocking=False)

    def release(self, name):
        self._locks.pop(name).release()


class FlaskSite(Site):
    loads = "get_or_load"

    def __init__(self, folder, options):
        super().__init__()
        import flask

        from wheelcache.flask_backend import Cache, transaction_scope

        app = flask.Flask("site", instance_path=folder)
        cache = Cache(
            app,
            config={
                "CACHE_TYPE": "wheelcache.flask_backend.HostCache",
                "CACHE_OPTIONS": {**options, "location": f"{folder}/entries"},
            },
        )
        app.app_context().push()
        self._scope = transaction_scope
        self._app, self.cache = app, app.extensions["cache"][cache]
        self.double = cache.memoize(60)(double)
        self.forget = self.forget_all = lambda *args: cache.delete_memoized(self.double, *args)
        self._values = SimpleNamespace(value=None)
        self._view = cache.cached(60)(lambda: self._values.value)

    def begin(self):
        self._scope.begin(self)
        self._open.callback(self._scope.commit, self)

    def page(self, path, value):
        self._values.value = value
        with self._app.test_request_context(path):
            return self._view()
