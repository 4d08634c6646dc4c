"""The commands that look at entries, and the workers that answer."""

import os

import pytest

from tests.watch.published import INTERVAL, look
from wheelcache.engine.codec import Codec, Pickle
from wheelcache.pages.figures import Figures
from wheelcache.watch import inquiries
from wheelcache.watch.inquiries import KEYS_HAVE_PREFIXES

pytestmark = pytest.mark.usefixtures("answering")


def test_get_shows_an_entry_in_each_worker_but_not_its_value(worker, command):
    worker({"key": ("secret", 100, "articles", "user:7")})
    worker({"key": (7, None), "other": (1, None)})
    worker({"other": (1, None)})
    shown, reason = command("get", "key")
    assert reason is None
    assert "secret" not in shown
    first, second, third = sorted(line.partition(": ")[2] for line in shown.splitlines())
    assert first == "no entry"
    assert second.endswith(" bytes, str, tags 'articles, user:7'")
    assert 80 < float(second.split()[1]) < 100
    assert third.startswith("present, never expires, ")
    assert third.endswith(" bytes, int")


def test_the_time_left_is_that_until_a_value_is_stale(worker, command):
    worker({"other": (1, None)}).get_or_load("key", lambda: 1, ttl=100, grace=1000)
    shown, _ = command("get", "key")
    assert 80 < float(shown.partition("present, ")[2].split()[0]) <= 100


def test_get_shows_a_value_if_it_is_asked_to(worker, command):
    stored = Codec(Pickle()).encode(["a list"])
    worker({"key": ("x" * 5000, None), "pickled": (stored, None)})
    shown, _ = command("get", "key", "--show-value")
    assert shown.endswith(f", str, value '{'x' * 999}\n")
    shown, _ = command("get", "pickled", "--show-value")
    assert shown.endswith(" bytes, serialized, value ['a list']\n")


def test_keys_lists_the_matching_keys_of_all_workers(worker, command):
    worker({"a1": (1, None), "a2": (1, 100), ("a3",): (1, None), ("f", 1): (1, None)})
    worker({"a1": (1, None), "b": (1, None)})
    assert command("keys", "a*") == ("a1\na2\na3\n", None)
    assert command("keys")[0].splitlines() == ["('f', 1)", "a1", "a2", "a3", "b"]
    document, _ = command("keys", "a1", "--json")
    assert [(each["keys"], each["count"]) for each in document["workers"]] == [(["a1"], 1)] * 2
    assert command("keys", "c*") == ("", f"No worker has such entries in the cache 'pages'. {KEYS_HAVE_PREFIXES}")


def test_a_terminal_shows_the_characters_of_a_stranger_that_could_control_it_as_escapes(worker, command):
    key, tag = "page \x1b]0;evil\x07\n\u202e\x9b2J \udcff café", "\x1b[2J"
    worker({key: (1, None, tag)})
    assert command("keys") == ("page \\x1b]0;evil\\x07\\n\\u202e\\x9b2J \\udcff café\n", None)
    assert command("tags") == ("1\t\\x1b[2J\n", None)
    assert command("keys", "--json")[0]["workers"][0]["keys"] == [key]


@pytest.mark.parametrize(
    ("target", "what"),
    [
        (["user:7:a"], "a key"),
        (["--pattern", "user:7:*"], "a pattern"),
        (["--tag", "user:7"], "a tag"),
    ],
)
def test_delete_removes_entries_in_all_workers_and_is_noted(worker, command, path, target, what):
    caches = [worker({"user:7:a": (1, None, "user:7"), "b": (1, None)}) for _ in range(2)]
    shown, reason = command("delete", *target)
    assert reason is None
    assert len(shown.splitlines()) == 2
    assert [(cache.get("user:7:a"), cache.get("b")) for cache in caches] == [(None, 1)] * 2
    assert event_of(path) == ("deleted", "pages", f": {what}")


@pytest.mark.parametrize(
    ("action", "options", "what"),
    [
        ("get", [], "a key"),
        ("get", ["--show-value"], "a key and its value"),
        ("keys", [], "a pattern"),
        ("tags", [], "tags"),
    ],
)
def test_looks_are_noted_without_the_key(worker, command, path, action, options, what):
    worker({"user:7": (1, None, "user:7")})
    assert command(action, "user:7", *options)[1] is None
    assert event_of(path) == ("inspected", "pages", f": {what}")


def event_of(path):
    """Return the kind, the cache and the subject of the latest event."""
    (event,) = look(path).events(1)
    return event.kind, event.cache, event.subject.partition(", in a terminal")[2]


def test_clear_empties_one_cache_or_all_in_all_workers_and_is_noted(worker, command, path, clock):
    caches = [worker({"a": (1, None)}, name) for name in ("pages", "pages", "other")]
    document, reason = command("clear", "--cache", "pages", "--json")
    assert (document, reason) == ([{"cache": "pages", "workers": 1, "entries": 2}], None)
    assert event_of(path) == ("cleared", "pages", "")
    clock.advance(2 * INTERVAL)
    assert [len(cache) for cache in caches] == [0, 0, 1]
    shown, _ = command("clear")
    assert f"'other': asked worker {os.getpid()} to remove 1 entry, within 6 seconds.\n" in shown
    assert event_of(path) == ("cleared", None, "")
    clock.advance(2 * INTERVAL)
    assert len(caches[-1]) == 0
    assert command("clear", "--cache", "x")[1] == "No worker has a cache 'x': there are 'other', 'pages'."


def test_purge_removes_the_pages_of_one_cache_or_all_and_is_noted(worker, command, path, clock):
    assert worker({}, "without pages", ttl=1).get("a") is None
    purged = []
    for cache in [worker({"a": (1, None)}, name) for name in ("pages", "more")]:
        cache.engine.keep_pages(Figures(), clock, purge=lambda target: purged.append(target) or 2, before_clear=list)
    clock.advance(INTERVAL)
    shown, reason = command("purge", "--cache", "pages", "example.com")
    assert (shown, reason) == ("'pages': removed 2 pages in 1 worker for example.com.\n", None)
    assert event_of(path) == ("purge", "pages", ": example.com")
    document, _ = command("purge", "https://example.com/a", "--json")
    assert [each["pages"] for each in document] == [2, 2]
    assert purged == ["example.com", *["https://example.com/a"] * 2]
    assert command("purge", "/a")[1].startswith("purge takes an absolute URL")
    assert command("purge", "--cache", "without pages", "example.com") == ("", "No running worker has an HTTP cache.")


def test_without_a_name_the_only_cache_is_meant_and_of_several_one_has_to_be_chosen(worker, command):
    caches = [worker({"a": (1, None)}, name) for name in ("pages", "other")]
    choose = "Choose a cache with --cache: there are 'other', 'pages'."
    assert command("delete", "a") == ("", choose)
    assert [len(cache) for cache in caches] == [1, 1]


@pytest.mark.parametrize("target", [[], ["--pattern", "a*", "--tag", "b"]])
def test_delete_needs_one_target(worker, command, target):
    cache = worker({"key": (1, None)})
    assert command("delete", *target) == ("", "Give delete one key, or --pattern, or --tag.")
    assert cache.get("key") == 1


def test_a_worker_that_does_not_answer_in_time_is_named(worker, command, monkeypatch):
    cache = worker({"key": (1, None)})
    monkeypatch.setattr(cache.engine.observed.observer.publication.inquiries, "run", lambda *args: None)
    monkeypatch.setattr(inquiries, "PATIENCE", 0)
    assert command("get", "key") == ("", f"No answer from worker {os.getpid()}")


def test_no_inquiry_and_no_value_stays_in_the_database(worker, command, path):
    worker({"key": ("secret", None)})
    command("get", "key", "--show-value")
    (file,) = look(path).files
    query = "SELECT document FROM inquiries UNION ALL SELECT document FROM answers"
    assert file.read(lambda db: db.execute(query).fetchall(), list) == []


def test_a_sample_hides_the_keys_of_sessions_and_cuts_long_ones(worker):
    keys = ":1:django.contrib.sessions.cacheabc123", "Session:42", "k" * 2000
    cache = worker(dict.fromkeys(keys, (1, None)))
    found = cache.engine.observed.observer.inspector.answer({"kind": "sample"})
    assert found["recent"] == ["k" * 1000 + "…", "Session…", ":1:django.contrib.session…"]
    assert sorted(key for key, _, _ in found["largest"]) == sorted(found["recent"])
