"""Many keys loaded by one call, beside loads of single keys."""

import asyncio

import pytest

from tests.loading.harness import Held, returns
from tests.waiting import PATIENCE


def test_what_is_found_is_stored_and_what_is_not_counts_as_a_load(site):
    asked = []

    def loader(keys):
        asked.append(keys)
        return {"a": 1, "b": 2}

    assert site.load_many(["a", "b", "c"], loader) == {"a": 1, "b": 2}
    assert asked == [["a", "b", "c"]]
    assert [site.core.find(key) for key in "abc"] == [1, 2, None]
    assert site.counts() == {"hits": 2, "loads": 3}


def test_it_asks_for_keys_that_are_there(site):
    site.set("a", "kept")
    assert site.load_many(["a"], returns({"a": "loaded"})) == {"a": "loaded"}
    assert site.get("a") == "loaded"


def test_a_coroutine_loads_many(site):
    async def loader(keys):
        await asyncio.sleep(0)
        return dict.fromkeys(keys, "loaded")

    assert asyncio.run(site.aload_many(["a", "b"], loader)) == {"a": "loaded", "b": "loaded"}
    assert site.get("a") == "loaded"


def test_an_error_reaches_the_caller_and_the_waiters(site, pool, waiters):
    loader = Held(LookupError("no"))
    many = pool.submit(site.load_many, ["a", "b"], loader)
    assert loader.is_running()
    waiting = pool.submit(site.take, "b", returns("unreached"))
    waiters(1)
    loader.release()
    assert many.exception(PATIENCE) is waiting.exception(PATIENCE) is loader.value
    assert site.loads.is_idle
    assert site.counts() == {"misses": 1, "load_failures": 2}


def test_a_caller_that_waits_for_a_key_gets_it_or_loads_it_if_it_was_not_found(site, pool, waiters):
    loader = Held({"a": "of many"})
    many = pool.submit(site.load_many, ["a", "b"], loader)
    assert loader.is_running()
    found = pool.submit(site.take, "a", returns("unreached"))
    not_found = pool.submit(site.take, "b", returns("its own"))
    waiters(2)
    loader.release()
    assert many.result(PATIENCE) == {"a": "of many"}
    assert found.result(PATIENCE) == "of many"
    assert not_found.result(PATIENCE) == "its own"


def test_it_does_not_wait_for_a_load_in_progress_and_neither_value_is_kept(site, pool):
    loader = Held("single")
    single = pool.submit(site.take, "a", loader)
    assert loader.is_running()
    assert site.load_many(["a", "b"], returns({"a": "of many", "b": 2})) == {"a": "of many", "b": 2}
    loader.release()
    assert single.result(PATIENCE) == "single"
    assert site.get("a") is None
    assert site.get("b") == 2


def test_a_load_that_stores_while_another_value_is_read_beside_it_is_not_kept(site):
    site.after_set = lambda: site.loads.read_beside("k", "other")
    assert site.take("k", returns("single")) == "single"
    assert site.get("k") is None


def test_a_flight_that_is_superseded_amid_its_store_is_not_kept(site):
    """The value beside it is read before the flight has stored, and compared with nothing."""
    site.before_set = lambda: site.loads.read_beside("k", "other")
    assert site.take("k", returns("single")) == "single"
    assert site.get("k") is None


def test_a_value_that_was_read_beside_an_entry_drops_it_if_it_differs(site):
    site.set("same", [1])
    site.set("other", 1)
    site.loads.read_beside("same", [1])
    site.loads.read_beside("other", 2)
    site.loads.read_beside("missing", 1)
    assert site.get("same") == [1]
    assert site.get("other") is None


@pytest.mark.parametrize("write", ["set", "delete"])
def test_what_is_written_meanwhile_wins(site, pool, write):
    loader = Held({"a": "old", "b": "old"})
    many = pool.submit(site.load_many, ["a", "b"], loader)
    assert loader.is_running()
    if write == "set":
        site.set("a", "written")
    else:
        site.delete("a")
    loader.release()
    many.result(PATIENCE)
    assert site.get("a") == ("written" if write == "set" else None)
    assert site.get("b") == "old"


def test_a_weigher_that_raises_ends_all_flights(site):
    def weigh(key, value):
        raise ValueError(key)

    site.weigh = weigh
    with pytest.raises(ValueError, match="a"):
        site.load_many(["a", "b"], returns({"a": 1, "b": 2}))
    assert site.loads.is_idle


def test_a_coroutine_that_is_closed_while_it_loads_many_leaves_no_flight(site):
    async def forever(keys):
        await asyncio.Event().wait()

    async def main():
        coroutine = site.aload_many(["a", "b"], forever)
        coroutine.send(None)
        assert not site.loads.is_idle
        coroutine.close()
        assert site.loads.is_idle

    asyncio.run(main())
