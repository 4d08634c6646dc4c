"""coherence="host": the option, and which calls tell other processes of a write. Stamps themselves are the engine's."""

import os
from itertools import count

import pytest

from tests.backends.adapters import IN_PROCESS
from tests.waiting import PATIENCE, until_waiting
from wheelcache.errors import FileUnusable
from wheelcache.runtime import private_files
from wheelcache.runtime.request_scope import end_request

pytestmark = pytest.mark.usefixtures("own_stamps")

_tests = count()


@pytest.fixture(params=IN_PROCESS.values(), ids=IN_PROCESS)
def adapter(request):
    return request.param


@pytest.fixture
def apart(adapter):
    """Make a cache with entries of its own, which acts as one in another process: ``apart(name)``."""
    sizes, test = count(7), next(_tests)

    def make(name="shared", **options):
        # In Django, caches of one LOCATION and the same OPTIONS have the same entries.
        return adapter.make(f"{name} of test {test}", coherence="host", max_entries=next(sizes), **options)

    return make


@pytest.mark.parametrize("options", [{}, {"coherence": None}])
def test_it_is_off_unless_asked_for(adapter, options):
    one, other = (adapter.make("off", max_entries=number, **options) for number in (7, 8))
    for each in (one, other):
        each.set("k", "old")
    one.set("k", "new")
    assert other.get("k") == "old"


def test_what_cannot_be_shared_is_an_error_at_start_up_that_says_why(adapter, monkeypatch):
    def refuse(path, *args):
        raise FileUnusable(f"{path} must belong to the user {os.geteuid()}")

    monkeypatch.setattr(private_files, "check_private", refuse)
    with pytest.raises(adapter.refused, match=f"must belong to the user {os.geteuid()}"):
        adapter.make(coherence="host")


WRITES = {
    "set": lambda cache: cache.set("k", 2),
    "set that is over at once": lambda cache: cache.set("k", 2, -1),
    "set_many": lambda cache: cache.set_many({"k": 2}),
    "set_many that is over at once": lambda cache: cache.set_many({"k": 2}, -1),
    "delete": lambda cache: cache.delete("k"),
    "delete_many": lambda cache: cache.delete_many(["k", "l"]),
    "count": lambda cache: cache.count("k"),
    "clear": lambda cache: cache.clear(),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_every_write_ends_the_entries_of_the_others_and_fills_do_not(apart, write):
    one, other = apart(), apart()
    for each in (one, other):
        assert each.get("k") is None
        each.set("k", 1)
        assert each.get_many(["l"]) == {}
        each.set_many({"l": 1})
        assert each.load("m", lambda: 1) == 1
    for each in (one, other):
        assert each.get_many("klm") == {"k": 1, "l": 1, "m": 1}
    write(one)
    assert other.get("k") is None


@pytest.mark.pairs(full="adapter", of="adapter")
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_an_old_value_in_its_fill_grace_is_not_returned_after_a_write_by_another_process(
    apart, write, clock, in_thread
):
    one, other = apart(), apart(fill_wait=1000, fill_grace=30)
    other.set("k", 1, 60)
    clock.advance(60)
    assert other.get("k") is None
    assert in_thread(other.get, "k").result(PATIENCE) == 1
    one.set("k", 2)
    write(one)
    waiting = in_thread(other.get, "k")
    until_waiting()
    end_request()
    assert waiting.result(PATIENCE) is None


def test_a_caller_that_receives_an_old_value_fills_nothing_by_a_later_set(apart, clock, in_thread):
    one, other = apart(fill_wait=1000, fill_grace=30), apart()
    one.set("k", 1, 60)
    clock.advance(60)
    assert one.get("k") is None
    assert other.get("k") is None
    other.set("k", "filled")

    def get_and_set():
        assert one.get("k") == 1
        one.set("k", "news")

    in_thread(get_and_set).result(PATIENCE)
    assert other.get("k") is None


def test_caches_of_another_name_are_left_alone(apart):
    one, elsewhere = apart("one"), apart("elsewhere")
    for each in (one, elsewhere):
        each.set("k", "old")
    one.clear()
    assert (one.get("k"), elsewhere.get("k")) == (None, "old")


def test_the_miss_of_one_request_does_not_make_a_fill_of_a_set_in_the_next(apart):
    one, other = apart(), apart()
    assert one.get("k") is None
    one.end_request()
    assert other.get("k") is None
    other.set("k", "old")
    one.set("k", "new")
    assert other.get("k") is None
