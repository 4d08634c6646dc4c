"""Entries survive their process: the first use of a cache finds the saved entries."""

from itertools import count

import pytest

from tests.backends.adapters import IN_PROCESS, WITH_ASYNC
from tests.engines import save_and_close

pytestmark = pytest.mark.usefixtures("own_stamps")

VALUES = {"list": [1, {"a": (2, 3)}], "text": "text", "number": 7, "none": None, "bytes": b"\0"}

_names = map("kept {}".format, count())


@pytest.fixture(params=IN_PROCESS.values(), ids=IN_PROCESS)
def adapter(request):
    return request.param


@pytest.fixture
def restart(adapter, tmp_path):
    """Make a backend whose entries are kept, in the place of the one before, which is saved as at an exit."""
    made, sizes, name = [], count(100), next(_names)

    def end():
        if made:
            save_and_close(made.pop().engine)

    def restart(**options):
        end()
        # In Django, the same name and options would be the same entries.
        options = {"snapshot": str(tmp_path / "snapshots"), "max_entries": next(sizes), **options}
        made.append(adapter.make(name, **options))
        return made[-1]

    yield restart
    end()


USES = {
    "touch": lambda cache: (not hasattr(cache, "touch") or cache.touch("list", 60)) and cache.get("list"),
    "get": lambda cache: cache.get("list"),
    "get_many": lambda cache: cache.get_many(["list"])["list"],
    "load": lambda cache: cache.load("list", lambda: pytest.fail("it was there")),
    "set": lambda cache: cache.set("other", 1) or cache.get("list"),
    "add": lambda cache: "added" if cache.add("list", "another") else cache.get("list"),
    "has": lambda cache: cache.has("list") and cache.get("list"),
    "count": lambda cache: cache.count("number") == 8 and cache.get("list"),
    "delete": lambda cache: cache.delete("text") and cache.get("list"),
}


@pytest.mark.pairs(full="adapter", of="use")
@pytest.mark.parametrize("adapter", WITH_ASYNC.values(), ids=WITH_ASYNC, indirect=True)
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_whatever_uses_the_cache_first_finds_what_was_there_before(restart, use):
    restart().set_many(VALUES)
    cache = restart()
    assert not cache.engine.keeper.save()
    assert use(cache) == VALUES["list"]
    assert cache.engine.keeper.save()


@pytest.mark.pairs(full="adapter", of="adapter")
@pytest.mark.parametrize(
    "options",
    [{"max_bytes": 100_000}, {"snapshot_key": "a"}, {"snapshot_key": b"\0"}, {"coherence": "host"}],
    ids=repr,
)
def test_values_come_back_isolated_with_what_is_left_of_their_time(restart, options):
    cache = restart(**options)
    cache.set_many(VALUES, 3600)
    cache.set("never", 1, None)
    cache = restart(**options)
    assert {key: cache.get(key) for key in VALUES} == VALUES
    cache.get("list").append("mine")
    assert cache.get("list") == VALUES["list"]
    assert 3590 < cache.ttl_left("text") <= 3600
    assert cache.ttl_left("never") is None


def test_what_was_signed_with_another_key_is_set_aside_with_one_warning(restart, tmp_path, caplog):
    restart(snapshot_key="one").set("key", 1)
    assert restart(snapshot_key="two").get("key") is None
    assert len(list((tmp_path / "snapshots").glob("*.refused"))) == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "signed with another secret" in caplog.text
