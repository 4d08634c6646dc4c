"""A HostCache that cannot work is an error at start-up, and one that has too little room a warning."""

import logging

import flask
import flask_caching
import pytest
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from wheelcache.errors import FileUnusable
from wheelcache.flask_backend import HostCache


def in_django(location, size, figures=None):
    options = {"FIGURES_DIR": figures, "MAX_SIZE": size}
    alias = {"BACKEND": "wheelcache.django_backend.HostCache", "LOCATION": location, "OPTIONS": options}
    with override_settings(CACHES={"default": alias}):
        return caches["default"]


def in_flask(location, size, figures=None):
    app = flask.Flask("shop")
    app.config["CACHE_TYPE"] = "wheelcache.flask_backend.HostCache"
    app.config["CACHE_OPTIONS"] = {"figures_dir": figures, "location": location, "max_size": size}
    cache = flask_caching.Cache(app)
    with app.app_context():
        return cache.cache


FRAMEWORKS = pytest.mark.parametrize(
    ("start", "error"), [(in_django, ImproperlyConfigured), (in_flask, FileUnusable)], ids=["django", "flask"]
)


@FRAMEWORKS
def test_a_location_without_a_folder_around_it_is_an_error_that_names_both(start, error, tmp_path):
    with pytest.raises(error, match=r"Wrong setting of .*/missing/cache cannot be created, since .*/missing is no"):
        start(str(tmp_path / "missing" / "cache"), 1 << 20)


@FRAMEWORKS
def test_a_location_that_is_no_private_folder_is_an_error(start, error, tmp_path):
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "file").touch(mode=0o600)
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "private")
    faults = {"open": "accessible to its owner only", "file": "a directory", "link": "links are not followed"}
    for name, fault in faults.items():
        with pytest.raises(error, match=f"Wrong setting of .*/{name} must be .*{fault}"):
            start(str(tmp_path / name), 1 << 20)


@FRAMEWORKS
def test_an_old_sqlite_is_an_error(start, error, tmp_path, monkeypatch):
    monkeypatch.setattr("sqlite3.sqlite_version_info", (3, 26, 0))
    monkeypatch.setattr("sqlite3.sqlite_version", "3.26.0")
    with pytest.raises(error, match=r"a HostCache needs SQLite 3\.32 or later, not 3\.26\.0"):
        start(str(tmp_path / "cache"), 1 << 20)


@FRAMEWORKS
def test_a_file_system_that_is_smaller_than_the_cache_is_a_warning_with_both_figures(start, error, tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "wheelcache"):
        start(str(tmp_path / "cache"), 1 << 20)
        assert caplog.messages == []
        start(str(tmp_path / "cache"), 1 << 60)
    (message,) = caplog.messages
    assert f"{1 << 40} MiB (MAX_SIZE)" in message
    assert f"{tmp_path}/cache has " in message


@FRAMEWORKS
def test_nothing_is_created_before_the_first_use(start, error, tmp_path):
    start(str(tmp_path / "cache"), 1 << 20)
    assert [*tmp_path.iterdir()] == []


@FRAMEWORKS
def test_the_first_call_of_a_process_may_be_a_read_of_a_value_that_another_one_has_written(start, error, tmp_path):
    def process(size):
        # A cache with figures starts its jobs at the first use. Another size makes it another cache.
        return start(str(tmp_path / "cache"), size, str(tmp_path / "figures"))

    process(1 << 20).set("key", "value")
    assert process(1 << 21).get("key") == "value"


@pytest.mark.parametrize("given", [{}, {"location": "sessions"}])
def test_a_cache_that_would_be_that_of_all_sites_of_the_user_is_an_error(given):
    with pytest.raises(ValueError, match=r"needs an identity of the site, or a path as location"):
        HostCache(**given)
