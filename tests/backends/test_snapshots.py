"""Entries survive their process: what uses a cache first finds what was there, and the options that say where."""

from itertools import count

import pytest

from tests.engines import save_and_close

pytestmark = pytest.mark.usefixtures("own_boards")

VALUES = {"list": [1, {"a": (2, 3)}], "text": "text", "number": 7, "none": None, "bytes": b"\0"}

_names = map("kept {}".format, count())


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
    "get": lambda cache: cache.get("list"),
    "get_many": lambda cache: cache.get_many(["list"])["list"],
    "load": lambda cache: cache.load("list", lambda: pytest.fail("it was there")),
    "set": lambda cache: cache.set("other", 1) or cache.get("list"),
    "add": lambda cache: "added" if cache.add("list", "another") else cache.get("list"),
    "has": lambda cache: cache.has("list") and cache.get("list"),
    "count": lambda cache: cache.count("number") == 8 and cache.get("list"),
    "delete": lambda cache: cache.delete("text") and cache.get("list"),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_whatever_uses_the_cache_first_finds_what_was_there_before(restart, use):
    restart().set_many(VALUES)
    cache = restart()
    assert not cache.engine.is_in_use()
    assert use(cache) == VALUES["list"]
    assert cache.engine.is_in_use()


OPTIONS = [{}, {"max_bytes": 100_000}, {"snapshot_key": "secret"}, {"snapshot_key": b"\0secret"}, {"coherence": "host"}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_value_comes_back_as_it_was_and_isolated(restart, options):
    restart(**options).set_many(VALUES)
    cache = restart(**options)
    assert {key: cache.get(key) for key in VALUES} == VALUES
    assert cache.has("none")
    cache.get("list").append("mine")
    assert cache.get("list") == VALUES["list"]


def test_timeouts_go_on(restart):
    cache = restart()
    cache.set("late", 1, 3600)
    cache.set("never", 1, None)
    cache = restart()
    assert cache.has("late")
    assert 3590 < cache.ttl_left("late") <= 3600
    assert cache.ttl_left("never") is None


def test_what_was_signed_with_another_key_is_set_aside_with_one_warning(restart, tmp_path, caplog):
    restart(snapshot_key="one").set("key", 1)
    assert restart(snapshot_key="two").get("key") is None
    assert len(list((tmp_path / "snapshots").glob("*.refused"))) == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "signed with another secret" in caplog.text


PATH = "must be an absolute path, or None, not"
SECONDS = "must be a number of seconds > 0, at least 0.000001, not"
KEY = "must be a string or bytes, not empty, or None"


@pytest.mark.parametrize(
    ("option", "wrong", "complaint"),
    [
        ("snapshot", "relative/path", f"{PATH} 'relative/path'"),
        ("snapshot", True, f"{PATH} True"),
        ("snapshot_interval", 0, f"{SECONDS} 0"),
        ("snapshot_interval", "300", f"{SECONDS} '300'"),
        ("snapshot_interval", None, f"{SECONDS} None"),
        ("snapshot_key", "", KEY),
        ("snapshot_key", 54321, KEY),
    ],
)
def test_a_wrong_option_is_named_with_what_it_takes(adapter, option, wrong, complaint):
    with pytest.raises(adapter.refused) as refused:
        adapter.make(**{option: wrong})
    assert f"{adapter.spelled(option)} {complaint}" in str(refused.value)
    # It may be a key that was meant to be kept.
    assert "54321" not in str(refused.value)


@pytest.mark.parametrize("option", ["snapshot", "figures_dir"])
@pytest.mark.parametrize("name", ["no/parent", "a file", "for all", "x" * 300])
def test_a_directory_that_cannot_be_used_is_an_error_that_names_the_option_and_says_why(
    adapter, tmp_path, option, name
):
    (tmp_path / "a file").touch()
    (tmp_path / "for all").mkdir(mode=0o755)
    complaint = f"{adapter.spelled(option)} must be a directory for this user alone"
    with pytest.raises(adapter.refused, match=complaint) as refused:
        adapter.make(**{option: tmp_path / name})
    assert str(tmp_path / name) in str(refused.value)
