"""Each call of both backends, by one process, acts on the entries of another one."""

from contextlib import ExitStack
from functools import cache

import pytest

from tests.host_cache.site_process import SiteProcess


@pytest.fixture(scope="module")
def processes_of(tmp_path_factory):
    """Return the two processes of a site of a framework, which are started once."""
    with ExitStack() as stack:

        @cache
        def start(framework):
            folder = tmp_path_factory.mktemp("site")
            both = []
            for _ in range(2):
                both.append(SiteProcess(framework, folder, transactions=True))
                stack.callback(both[-1].close)
                # Django's tables are made by one process after the other.
                both[-1].clear()
            return both

        yield start


def writes(one, other):
    one.set("k", {"a": [1]})
    assert other.get("k") == {"a": [1]}
    assert not other.add("k", 1)
    assert other.delete("k")
    assert one.get("k") is None
    assert other.add("k", 1)
    assert not one.add("k", 2)
    one.clear()
    assert other.get("k") is None


def loads(one, other):
    assert one.load("k", ["one"]) == other.load("k", ["other"]) == ["one"]


def tags(one, other):
    one.set("a", 1, tags=["t", "u"])
    other.set("b", 2, tags=["u"])
    one.delete_tags("t")
    assert (other.get("a"), other.get("b")) == (None, 2)
    other.delete_tags("u")
    assert one.get("b") is None


def memoized(one, other):
    assert [one.double(1), other.double(1), other.double(2), one.double(2)] == [[2], [2], [4], [4]]
    assert (one.runs(), other.runs()) == ([1], [2])
    other.forget(1)
    assert [one.double(1), one.double(2)] == [[2], [4]]
    assert one.runs() == [1]
    one.forget_all()
    assert [other.double(1), other.double(2), one.double(1)] == [[2], [4], [2]]
    assert (one.runs(), other.runs()) == ([], [1, 2])


def transactions(one, other):
    one.set("k", "old")
    one.begin()
    one.set("k", "new")
    assert (one.get("k"), other.get("k")) == ("new", "old")
    one.end()
    assert other.get("k") == "new"


def pages(one, other):
    assert one.page("/page", "one") == other.page("/page", "other") == "one"


COMMON = [writes, loads, tags, memoized, transactions, pages]


# Django.


def numbers(one, other):
    one.set("n", 1)
    assert [other.incr("n"), one.incr("n", 5), other.decr("n")] == [2, 7, 6]


def many(one, other):
    assert one.set_many({"a": 1, "b": [2]}) == []
    assert other.get_many(["a", "b", "c"]) == {"a": 1, "b": [2]}
    other.delete_many(["a", "c"])
    assert one.get_many(["a", "b"]) == {"b": [2]}


def timeouts(one, other):
    one.set("k", 1, 1000)
    assert other.has_key("k")
    assert other.touch("k", 60)
    assert 50 < one.ttl("k") <= 60
    assert other.persist("k")
    assert one.ttl("k") is None
    assert other.touch("k", -1)
    assert not one.has_key("k")


def versions(one, other):
    one.set("k", "first")
    assert other.incr_version("k") == 2
    assert (one.get("k"), one.get("k", version=2)) == (None, "first")


def patterns(one, other):
    one.set_many({"user:1": 1, "user:2": 2, "page:1": 3})
    assert sorted(other.keys("user:*")) == ["user:1", "user:2"]
    assert other.delete_pattern("user:*") == 2
    assert one.get_many(["user:1", "user:2", "page:1"]) == {"page:1": 3}


def tasks(one, other):
    one.run("aset", "k", [1])
    assert other.run("aget", "k") == [1]
    assert other.run("aget_many", ["k"]) == {"k": [1]}
    assert not other.run("aadd", "k", 2)
    assert other.run("adelete", "k")
    assert one.run("aget_or_set", "k", "one") == other.run("aget_or_set", "k", "other") == "one"


def locks(one, other):
    assert one.acquire("job", timeout=60)
    assert not other.acquire("job", timeout=60)
    one.release("job")
    assert other.acquire("job", timeout=60)
    other.release("job")


def session(backend):
    def sessions(one, other):
        key = one.save_session(backend, user=7)
        assert other.read_session(backend, key) == {"user": 7}
        other.save_session(backend, key, basket=[1])
        assert one.read_session(backend, key) == {"user": 7, "basket": [1]}
        one.end_session(backend, key)
        assert other.read_session(backend, key) == {}

    sessions.__name__ = backend
    return sessions


def fragments(one, other):
    assert one.fragment("one") == other.fragment("other") == "one"
    one.clear()
    assert other.fragment("other") == one.fragment("one") == "other"


DJANGO = [numbers, many, timeouts, versions, patterns, tasks, locks, session("cache"), session("cached_db"), fragments]


# Flask.


def cachelib(one, other):
    assert sorted(one.set_many({"a": 1, "b": [2]})) == ["a", "b"]
    assert other.get_dict("a", "b") == {"a": 1, "b": [2]}
    assert other.has("a")
    assert [one.inc("a"), other.inc("a", 5), one.dec("a")] == [2, 7, 6]
    assert other.delete_many("a", "b") == ["a", "b"]
    assert one.get_many("a", "b") == [None, None]


CASES = [
    *(("django", scenario) for scenario in (*COMMON, *DJANGO)),
    *(("flask", scenario) for scenario in (*COMMON, cachelib)),
]


@pytest.mark.parametrize(("framework", "scenario"), CASES, ids=lambda given: getattr(given, "__name__", given))
def test_both_processes_have_the_same_entries(processes_of, framework, scenario):
    both = processes_of(framework)
    for one, other in (both, both[::-1]):
        one.clear()
        scenario(one, other)
