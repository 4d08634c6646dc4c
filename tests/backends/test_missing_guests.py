"""Settings and calls that need a guest, where its folder is missing."""

import sys

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from tests.backends.on_django import OnDjango
from wheelcache.engine.option_table import Options

OPTIONS = {
    "fill_wait": ("fill_waits", 5),
    "grace": ("fill_waits", 5),
    "transactions": ("transactions", False),
    "figures_dir": ("watch", "/tmp"),
}

on_django = pytest.mark.parametrize("adapter", [OnDjango], indirect=True)


@pytest.fixture
def remove(monkeypatch):
    """Make a guest missing."""
    return lambda guest: monkeypatch.setitem(sys.modules, f"wheelcache.{guest}", None)


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_of_a_missing_guest_is_an_error_that_names_both(adapter, remove, option):
    guest, value = OPTIONS[option]
    remove(guest)
    message = f"{adapter.spelled(option)} needs wheelcache.{guest}, which is not installed"
    with pytest.raises(adapter.refused, match=message):
        adapter.make(**{option: value})


@pytest.mark.parametrize("option", ["fill_wait", "grace", "transactions"])
@pytest.mark.parametrize("framework", ["django", "flask"])
def test_the_table_has_no_options_of_missing_guests(remove, framework, option):
    remove(OPTIONS[option][0])
    table = Options.of_backend(framework)
    assert option not in map(str.lower, table)
    assert option not in table.checked({})


@on_django
def test_so_is_a_setting_of_the_site(remove, make):
    remove("watch")
    message = "WHEELCACHE_RELEASE needs wheelcache.watch, which is not installed"
    with override_settings(WHEELCACHE_RELEASE="1.0"), pytest.raises(ImproperlyConfigured, match=message):
        make()
