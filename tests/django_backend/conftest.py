"""Django, configured once for this folder, and backends on a clock that the test moves."""

from functools import partial
from itertools import count

import django
import pytest
from django.conf import settings

from wheelcache import Cache, ManualClock

BACKEND = "wheelcache.django_backend.WheelCache"

settings.configure(
    ALLOWED_HOSTS=["testserver"],
    CACHES={"default": {"BACKEND": BACKEND, "OPTIONS": {"JITTER": 0}}},
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=["django.contrib.sessions", "wheelcache.django_backend"],
    # Logging is everybody's in this process; only the other folders' tests may have a say in it.
    LOGGING_CONFIG=None,
    ROOT_URLCONF="tests.django_backend.test_sites",
    SECRET_KEY="not secret",
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
)
django.setup()

from wheelcache.django_backend import WheelCache, stores  # noqa: E402  # Django has to be configured first.

_locations = map("store {}".format, count())


@pytest.fixture(autouse=True)
def _forget_entries():
    yield
    for store in stores._stores.values():
        store.cache.clear()


@pytest.fixture
def make():
    """Make a backend as Django would: ``make(OPTIONS, TIMEOUT=..., ...)``, in a store of its own unless told where."""

    def make_backend(options=None, *, location=None, cls=WheelCache, **params):
        options = {"JITTER": 0, "LOG_INTERVAL": None, **(options or {})}
        return cls(next(_locations) if location is None else location, {"OPTIONS": options, **params})

    return make_backend


@pytest.fixture
def clock(monkeypatch):
    """The time of every backend whose store is made in this test. Nothing expires until the test says so."""
    manual = ManualClock(1_000_000.0)
    monkeypatch.setattr(stores, "Cache", partial(Cache, clock=manual))
    return manual
