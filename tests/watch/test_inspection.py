"""Inspection of entries for the dashboard's page, without a framework."""

import json

import pytest

from tests.watch.published import INTERVAL
from wheelcache.watch.dashboard.dashboard import Dashboard
from wheelcache.watch.dashboard.inspection import Target
from wheelcache.watch.dashboard.refusals import Refused

HOSTILE = [
    "<script>alert(1)</script>",
    "two\nlines",
    "\x00\x7f\u202e",
    "ключ 💥",
    "' OR 1=1 --",
    "$config",
    "*",
    "[a-z]",
    "x" * 10_000,
    " spaces ",
    "\ud800",
]


@pytest.fixture
def search(clock):
    """Ask the workers of a cache, and return their answers: ``search(cache, "find", "key", "k")``."""

    def search_for(cache, *target):
        dashboard = Dashboard("a site", lambda: [cache], lambda name: [])
        token = dashboard.inspect(cache.name, Target(*target), "ann")["token"]
        clock.advance(2 * INTERVAL)
        found = dashboard.answers(token)
        assert found == json.loads(json.dumps(found))
        assert found["is_over"]
        with pytest.raises(Refused, match="over"):
            dashboard.answers(token)
        return found

    return search_for


@pytest.mark.parametrize("action", ["find", "delete"])
@pytest.mark.parametrize("pattern", ["*[s]essions.cachen*", "*.cachen*", "?1?django.contrib.*essions.cachenbc", "*nbc"])
def test_a_pattern_finds_nothing_out_about_the_key_of_a_session(worker, search, action, pattern):
    cache = worker({":1:django.contrib.sessions.cachenbc": (1, None), "unabc": (1, None)})
    ((_, count),) = search(cache, action, "pattern", pattern)["rows"]
    assert count == 0
    ((_, count),) = search(cache, action, "pattern", "*SESSION*" if action == "find" else ":1:*")["rows"]
    assert count == (0 if action == "find" else 1)


def test_a_key_is_found_in_the_workers_that_have_it(worker, search):
    cache = worker({"k": ("a value", 100, "tag", "user:7")})
    worker({"k": (1, None)})
    worker({"other": (1, None)})
    found = search(cache, "find", "key", "k")
    assert found["text"] == "Present in 2 of 3 workers"
    assert found["heads"] == ["Worker", "Entry", "Time left", "Size", "Type", "Tags"]
    first, second, third = sorted((row[1:] for row in found["rows"]), key=lambda row: (row[0], str(row[1])))
    assert first == ["no entry", "", "", "", ""]
    assert 80 < second[1] < 100
    assert second[2] > 20
    assert second[3:] == ["str", "tag, user:7"]
    assert third[1:] == ["never expires", third[2], "int", ""]
    assert "a value" not in json.dumps(found)


@pytest.mark.parametrize("key", HOSTILE, ids=ascii)
def test_any_text_can_be_a_key_that_is_found_and_deleted_alone(worker, search, key):
    cache = worker({key: (1, None), "other": (1, None)})
    assert search(cache, "find", "key", key)["rows"][0][1] == "present"
    assert search(cache, "delete", "key", key)["rows"][0][1] == 1
    assert (cache.get(key), cache.get("other")) == (None, 1)


@pytest.mark.parametrize("tag", HOSTILE[:-2], ids=ascii)
def test_a_tag_is_found_as_it_is_and_not_as_a_pattern(worker, search, tag):
    cache = worker({"a": (1, None, tag), "b": (1, None, tag), "c": (1, None, "other")})
    found = search(cache, "find", "tag", tag)
    assert found["text"] == "2 entries have this tag, in all workers together"
    assert [row[1] for row in found["rows"]] == [2]
    assert search(cache, "delete", "tag", tag)["rows"][0][1] == "the entries of the tag"
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (None, None, 1)


@pytest.mark.compiled
def test_the_keys_of_a_group_are_listed_without_those_of_others_and_without_the_keys_of_sessions(worker, search):
    cache = worker({"user:1": ("x" * 900, 100), "user:2": (1, None), "users": (1, None), "a session:secret": (1, None)})
    worker({"user:1": (1, None), "user:3": (1, None)})
    found = search(cache, "find", "group", "user")
    assert (found["text"], found["heads"]) == ("3 of 4 keys", ["Key", "Size", "Time left", "Workers"])
    rows = {row[0]: row[1:] for row in found["rows"]}
    assert {key: workers for key, (*_, workers) in rows.items()} == {"user:1": 2, "user:2": 1, "user:3": 1}
    assert rows["user:1"][0] > 900
    assert 80 < rows["user:1"][1] < 100
    assert [row[0] for row in search(cache, "find", "group", "")["rows"]] == ["users"]
    assert [row[0] for row in search(cache, "find", "group", "a session")["rows"]] == ["a session…"]
    assert search(cache, "find", "group", "gone")["text"] == "No keys now"
