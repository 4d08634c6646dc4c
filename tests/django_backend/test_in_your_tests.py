"""What the README says of a site's tests: override_settings, and one process for each worker of pytest-xdist."""

import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from django.core.cache import caches
from django.test import override_settings

BACKEND = "wheelcache.django_backend.WheelCache"

_locations = map("in your tests {}".format, count())


def overridden(location, options=None, **beside):
    cache = {"BACKEND": BACKEND, "LOCATION": location, "OPTIONS": options or {}, **beside}
    return override_settings(CACHES={"default": cache})


@pytest.fixture
def location():
    return next(_locations)


@pytest.mark.parametrize("beside", [{}, {"TIMEOUT": 5}], ids=["all the same", "another timeout"])
def test_override_settings_with_the_same_location_and_options_finds_the_entries(location, beside):
    with overridden(location):
        caches["default"].set("a", 1)
    with overridden(location, **beside):
        assert caches["default"].get("a") == 1


def test_override_settings_with_another_location_or_other_options_finds_none(location):
    with overridden(location):
        caches["default"].set("a", 1)
        with overridden(next(_locations)):
            assert caches["default"].get("a") is None
        with overridden(location, {"MAX_ENTRIES": 5}):
            assert caches["default"].get("a") is None
        assert caches["default"].get("a") == 1


def test_clearing_all_caches_clears_those_that_another_thread_filled(location, together):
    with overridden(location):
        together(lambda number: caches["default"].set(f"k{number}", 1))
        assert caches["default"].get("k0") == 1
        for cache in caches.all():
            cache.clear()
        assert caches["default"].get_many([f"k{number}" for number in range(32)]) == {}


def test_workers_of_pytest_xdist_have_entries_of_their_own(tmp_path):
    tests = tmp_path / "test_own.py"
    tests.write_text(
        """
import time

import pytest
from django.conf import settings

settings.configure(
    SECRET_KEY="x",
    CACHES={"default": {"BACKEND": "wheelcache.django_backend.WheelCache", "OPTIONS": {"FIGURES_DIR": None}}},
)
from django.core.cache import cache


@pytest.mark.parametrize("number", range(2))
def test_own(number, worker_id, tmp_path_factory):
    cache.set("a", worker_id)
    here = tmp_path_factory.getbasetemp().parent
    (here / worker_id).touch()
    deadline = time.monotonic() + 20
    while not all((here / name).exists() for name in ("gw0", "gw1")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert cache.get("a") == worker_id
"""
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "--rootdir", tmp_path, tests],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
