"""Options of guests, which are found by name."""

import sys

import pytest

from wheelcache.engine.option_table import BACKENDS, Options, rows_for

GUESTS = {"fill_wait": "fill_waits", "fill_grace": "fill_waits", "transactions": "transactions", "inspect": "watch"}


@pytest.mark.parametrize(("option", "guest"), GUESTS.items())
@pytest.mark.parametrize("framework", ["django", "flask"])
def test_without_the_folder_of_a_guest_its_options_are_unknown(monkeypatch, framework, option, guest):
    # As if there was no such folder.
    monkeypatch.setitem(sys.modules, f"wheelcache.{guest}", None)
    table = Options(rows_for(BACKENDS), framework)
    name = option.upper() if framework == "django" else option
    assert name not in table
    assert f"unknown option {name!r} of the cache 'a'" in table.unknown({name: 5}, "the cache 'a'")
    assert option not in table.checked({})
