"""Many keys loaded by one call, beside loads of single keys."""

import asyncio

import pytest

from tests.loading.harness import Held, returns
from tests.waiting import PATIENCE, until_waiting
from wheelcache import LoadDeadlock


@pytest.fixture(params=["in threads", "in tasks"])
def load_many(site, request):
    """``load_many(keys, loader)``, or its twin, which awaits what the loader returns."""
    if request.param == "in threads":
        return site.load_many

    async def aload_many(keys, loader):
        async def aloader(keys):
            await asyncio.sleep(0)
            return loader(keys)

        return await site.aload_many(keys, aloader)

    return lambda keys, loader: asyncio.run(aload_many(keys, loader))


def test_all_keys_are_asked_for_and_those_that_are_found_are_stored(site, load_many):
    asked = []

    def loader(keys):
        asked.append(keys)
        return {"a": 1, "b": 2}

    site.set("a", "old")
    assert load_many(["a", "b", "c"], loader) == {"a": 1, "b": 2}
    assert asked == [["a", "b", "c"]]
    assert site.counts() == {"loads": 3}
    assert [site.get(key) for key in "abc"] == [1, 2, None]


def test_an_error_reaches_the_caller_and_the_waiters(site, pool):
    loader = Held(LookupError("no"))
    many = pool.submit(site.load_many, ["a", "b"], loader)
    assert loader.is_running()
    waiting = pool.submit(site.take, "b", returns("unreached"))
    until_waiting()
    loader.release()
    assert many.exception(PATIENCE) is waiting.exception(PATIENCE) is loader.value
    assert site.loads.is_idle
    assert site.counts() == {"misses": 1, "load_failures": 2}


def test_a_caller_that_waits_for_a_key_gets_it_or_loads_it_if_it_was_not_found(site, pool):
    loader = Held({"a": "of many"})
    many = pool.submit(site.load_many, ["a", "b"], loader)
    assert loader.is_running()
    found = pool.submit(site.take, "a", returns("unreached"))
    not_found = pool.submit(site.take, "b", returns("its own"))
    until_waiting(2)
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


@pytest.mark.parametrize("moment", ["before_set", "after_set"])
def test_a_load_beside_which_another_value_is_read_amid_its_store_is_not_kept(site, moment):
    setattr(site, moment, lambda: site.loads.read_beside("k", "other"))
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


@pytest.mark.parametrize("written", ["set", None])
def test_what_is_written_meanwhile_wins(site, load_many, written):
    def loader(keys):
        site.set("a", "set") if written else site.delete("a")
        return dict.fromkeys(keys, "old")

    assert load_many(["a", "b"], loader) == {"a": "old", "b": "old"}
    assert (site.get("a"), site.get("b")) == (written, "old")


def test_a_loader_of_many_that_takes_one_of_them_is_refused(site, load_many):
    with pytest.raises(LoadDeadlock):
        load_many(["a", "b"], lambda keys: {"a": site.take("b", returns("unreached"))})


def test_a_weigher_that_raises_ends_all_flights(site, load_many):
    def weigh(key, value):
        raise ValueError(key)

    site.weigh = weigh
    with pytest.raises(ValueError, match="a"):
        load_many(["a", "b"], returns({"a": 1, "b": 2}))
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
