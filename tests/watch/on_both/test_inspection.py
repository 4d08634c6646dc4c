"""Inspection on the dashboard in both frameworks: the permission, and the audit.

The answers are the engine's: see ``tests/watch/test_inspection.py``.
"""

import logging

import pytest

from tests.watch.on_both.dashboard_page import ANSWERS, INSPECT
from tests.watch.on_both.dashboard_sites import events, press
from wheelcache.watch.publisher import INTERVAL

pytestmark = pytest.mark.pairs(full="make_site", of="make_site")

FIND = {"cache": "atlas", "action": "find", "kind": "key", "text": "k"}
DELETE = {**FIND, "action": "delete"}


@pytest.fixture
def site(clock, make_site):
    """A site whose workers publish when the test advances the clock."""
    return make_site(grant=frozenset({"inspect", "operate"}))


def search(site, clock, **fields):
    """Fill in the form, and return the answers of the workers."""
    status, answer = press(site, INSPECT, {**FIND, **fields})
    assert status == 200, answer
    clock.advance(2 * INTERVAL)
    status, answer = press(site, ANSWERS, answer)
    assert status == 200, answer
    return answer


def stored_key(site, clock):
    """Return the key under which the cache stores "k"."""
    (row,) = search(site, clock, action="sample", text="")["rows"]
    return row[0]


def test_an_inspector_finds_and_deletes_a_key_and_every_use_is_recorded(site, clock, caplog):
    caplog.set_level(logging.INFO, "wheelcache")
    key = stored_key(site, clock)
    ((_, entry, *_),) = search(site, clock, text=key)["rows"]
    assert entry == "present"
    assert search(site, clock, text=key, action="delete")["rows"][0][1] == 1
    assert site.cache.get("k") is None
    ((_, entry, *_),) = search(site, clock, text=key)["rows"]
    assert entry == "no entry"
    assert sorted(events(site)) == [
        ("deleted", "atlas", f"by {site.user}: a key"),
        ("inspected", "atlas", f"by {site.user}: a key (2 times)"),
        ("inspected", "atlas", f"by {site.user}: a sample"),
    ]
    logged = [each.getMessage() for each in caplog.records if each.name == "wheelcache"]
    assert len(logged) == 4
    assert ["deleted entries of the cache 'atlas'" in each for each in logged] == [False, False, True, False]
    assert key not in "".join(logged)


def test_a_cache_that_does_not_publish_cannot_be_inspected(make_site):
    site = make_site(figures_dir=None, grant=frozenset({"inspect", "operate"}))
    for fields in (FIND, DELETE, {**FIND, "action": "sample"}):
        refusal = {"error": "The cache 'atlas' cannot be inspected: set FIGURES_DIR to a directory"}
        assert press(site, INSPECT, fields) == (404, refusal)
    assert site.cache.get("k") == "v"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"action": "get"}, "Give an action (find, delete or sample)"),
        ({"kind": "value"}, "Give an action (find, delete or sample) and a kind (key, pattern, tag)"),
        ({"text": ""}, "Give a key"),
        ({"text": "", "kind": "tag"}, "Give a tag"),
        ({"text": "*sessions.cache[n-z]*", "kind": "pattern"}, "In a pattern, only * may follow the word session"),
        ({"text": "Session:a?", "kind": "pattern", "action": "delete"}, "In a pattern, only * may follow the word"),
        ({"text": "x" * 20_000}, "A key must have at most 16,384 characters, not 20,000"),
    ],
)
def test_bad_input_is_an_error_that_says_what_to_give(site, fields, error):
    status, answer = press(site, INSPECT, {**FIND, **fields})
    assert status == 400
    assert answer["error"].startswith(error)
    assert events(site) == []
