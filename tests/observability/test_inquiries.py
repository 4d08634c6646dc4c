"""The commands that look at entries, and the workers that answer."""

import io
import json
from types import SimpleNamespace

import pytest

from tests.observability.published import INTERVAL, look
from tests.waiting import PATIENCE
from wheelcache import Cache
from wheelcache.codec import Codec, Pickle
from wheelcache.observability import inquiries
from wheelcache.observability.entry_commands import LIMIT, Target, run
from wheelcache.observability.snapshot_commands import Undone


@pytest.fixture(autouse=True)
def _workers_publish_while_a_command_waits(monkeypatch, clock):
    monkeypatch.setattr(inquiries, "time", SimpleNamespace(sleep=lambda seconds: clock.advance(INTERVAL)))


@pytest.fixture
def worker(make, clock):
    """Make a cache that is published."""

    def make_worker(entries, name="pages", **options):
        cache = make(name, **options)
        for key, (value, ttl, *tags) in entries.items():
            cache.set(key, value, ttl, tags=tags)
        clock.advance(INTERVAL)
        return cache

    return make_worker


@pytest.fixture
def command(path):
    """Run a command: ``command("get", "key", show_value=True)``. Return its output, and the reason of its failure."""

    def run_command(action, *text, name=None, as_json=False, patience=PATIENCE, **target):
        out, reason = io.StringIO(), None
        try:
            caches = [Cache("looks only", figures_dir=path)]
            run(action, caches, name, Target(*text, **target), out, as_json=as_json, patience=patience)
        except Undone as error:
            reason = str(error)
        return json.loads(out.getvalue()) if as_json else out.getvalue(), reason

    return run_command


def test_get_shows_an_entry_in_each_worker_but_not_its_value(worker, command):
    worker({"key": ("secret", 100, "articles", "user:7")})
    worker({"key": (7, None), "other": (1, None)})
    worker({"other": (1, None)})
    shown, reason = command("get", "key")
    assert reason is None
    assert "secret" not in shown
    first, second, third = sorted(line.partition(": ")[2] for line in shown.splitlines())
    assert first.endswith(" bytes, str, tags 'articles', 'user:7'")
    assert 80 < float(first.split()[0]) < 100
    assert second.startswith("never expires, ")
    assert second.endswith(" bytes, int")
    assert third == "no entry"


def test_get_shows_a_value_if_it_is_asked_to(worker, command):
    stored = Codec(Pickle()).encode(["a list"])
    worker({"key": ("x" * 5000, None), "pickled": (stored, None)})
    shown, _ = command("get", "key", show_value=True)
    assert shown.endswith(f"\n  '{'x' * 999}\n")
    shown, _ = command("get", "pickled", show_value=True)
    assert shown.endswith(" bytes, serialized\n  ['a list']\n")


def test_the_document_has_the_answer_of_each_worker(worker, command):
    worker({"key": ("secret", 100, "tag")})
    document, reason = command("get", "key", as_json=True)
    (found,) = document["workers"]
    assert reason is None
    assert (document["cache"], found["found"], found["tags"], found["type"]) == ("pages", True, ["tag"], "str")
    assert 80 < found["seconds_left"] < 100
    assert "value" not in found


def test_ttl_shows_the_time_left(worker, command):
    worker({"key": (1, 100), "lasts": (1, None)})
    shown, _ = command("ttl", "key")
    assert shown.endswith(" s left\n")
    assert command("ttl", "lasts")[0].endswith(": never expires\n")


@pytest.mark.parametrize("action", ["get", "ttl"])
def test_a_key_that_no_worker_has_is_a_failure(worker, command, action):
    worker({"key": (1, None)})
    shown, reason = command(action, "other")
    assert shown.endswith(": no entry\n")
    assert reason == "No worker has such an entry in the cache 'pages'."
    document, reason = command(action, "other", as_json=True)
    assert [each["found"] for each in document["workers"]] == [False]
    assert reason is not None


def test_keys_lists_the_matching_keys_of_all_workers(worker, command):
    worker({"a1": (1, None), "a2": (1, 100), ("a3",): (1, None), ("f", 1): (1, None)})
    worker({"a1": (1, None), "b": (1, None)})
    assert command("keys", "a*") == ("a1\na2\na3\n", None)
    assert command("keys")[0].splitlines() == ["('f', 1)", "a1", "a2", "a3", "b"]
    document, _ = command("keys", "a1", as_json=True)
    assert [(each["keys"], each["count"]) for each in document["workers"]] == [(["a1"], 1)] * 2
    assert command("keys", "c*") == ("", "No worker has such entries in the cache 'pages'.")


def test_keys_lists_neither_expired_keys_nor_more_than_it_can_show(worker, command, clock):
    cache = worker({"old": (1, 5)}, max_entries=None, interval=3600)
    cache.set_many({f"key:{number}": 1 for number in range(LIMIT + 5)})
    clock.advance(10)
    shown, _ = command("keys")
    assert len(shown.splitlines()) == LIMIT + 1
    assert shown.endswith("... and 5 more in one worker; use a narrower pattern\n")
    assert "old" not in shown


def test_tags_counts_the_entries_of_each_tag(worker, command):
    worker({"a": (1, None, "x", "y"), "b": (1, None, "x")})
    worker({"c": (1, None, "x")})
    assert command("tags") == ("3\tx\n1\ty\n", None)
    assert command("tags", "y*") == ("1\ty\n", None)
    assert command("tags", "z")[1] == "No worker has such entries in the cache 'pages'."


@pytest.mark.parametrize("target", [Target("user:7:a"), Target(pattern="user:7:*"), Target(tag="seven")])
def test_delete_removes_entries_in_all_workers_and_is_noted(worker, command, path, target):
    caches = [worker({"user:7:a": (1, None, "seven"), "b": (1, None)}) for _ in range(2)]
    shown, reason = command("delete", **target._asdict())
    assert reason is None
    assert len(shown.splitlines()) == 2
    assert [(cache.get("user:7:a"), cache.get("b")) for cache in caches] == [(None, 1)] * 2
    event = look(path).events(1)[0]
    assert (event.kind, event.cache) == ("deleted", "pages")
    assert "user:7" not in repr(event)


def test_a_deletion_that_finds_nothing_is_a_failure(worker, command):
    worker({"key": (1, None)})
    assert command("delete", "other")[1] == "No worker has such entries in the cache 'pages'."
    assert command("delete", pattern="x*")[1] is not None


@pytest.mark.parametrize("target", [{}, {"pattern": "a*", "tag": "b"}])
def test_delete_needs_one_target(worker, command, target):
    cache = worker({"key": (1, None)})
    assert command("delete", **target) == ("", "Give delete one key, or --pattern, or --tag.")
    assert cache.get("key") == 1


def test_get_needs_a_key(worker, command):
    worker({"key": (1, None)})
    assert command("get") == ("", "Give get a key.")


def test_a_site_with_several_caches_needs_a_name(worker, command):
    worker({"key": (1, None)})
    worker({"key": (2, None)}, name="others")
    assert command("ttl", "key")[1] == "Choose a cache with --cache: there are 'others', 'pages'."
    assert command("ttl", "key", name="none")[1] == "No worker has a cache 'none': there are 'others', 'pages'."
    assert command("get", "key", name="others")[1] is None


def test_a_site_without_workers_is_a_failure(command):
    assert "No worker of this site publishes figures" in command("keys")[1]


def test_a_worker_that_does_not_answer_in_time_is_named(worker, command, monkeypatch):
    cache = worker({"key": (1, None)})
    monkeypatch.setattr(cache.observer.publication.inquiries, "run", lambda *args: None)
    shown, reason = command("get", "key", patience=0)
    assert shown == ""
    assert reason.startswith("No answer from ")
    assert reason.endswith(", of 1 workers.")


def test_an_error_in_a_worker_is_shown(worker, command):
    class Broken:
        def __repr__(self):
            raise ValueError("broken")

    worker({"key": (Broken(), None)})
    shown, reason = command("get", "key", show_value=True)
    assert shown == ""
    assert "could not answer: ValueError('broken')" in reason
    assert command("get", "key")[1] is None


def test_looking_changes_nothing(worker, command):
    cache = worker({"a": (1, 100), "b": (1, None), "c": (1, None)})
    before, order = cache.stats(), cache.keys()
    for action, *text in (("get", "a"), ("ttl", "b"), ("keys",), ("tags",)):
        command(action, *text)
    after = cache.stats()
    assert (after.hits, after.misses, after.puts, cache.keys()) == (before.hits, before.misses, before.puts, order)


def test_no_inquiry_and_no_value_stays_in_the_database(worker, command, path):
    worker({"key": ("secret", None)})
    command("get", "key", show_value=True)
    (file,) = look(path).files
    for table in ("inquiries", "answers"):
        assert file.read(lambda db, table=table: db.execute(f"SELECT * FROM {table}").fetchall(), list) == []


def test_a_worker_ignores_inquiries_from_before_it_was_made(make, worker, path, clock):
    worker({"key": (1, None)})
    site = look(path)
    (file,) = site.files
    file.write(lambda db: inquiries._add_inquiry(db, "old", "pages", json.dumps({"kind": "delete", "key": "late"})))
    late = worker({"late": (1, None)})
    clock.advance(2 * INTERVAL)
    assert late.get("late") == 1
