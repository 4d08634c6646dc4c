"""Keys and values that are unusual."""

import pytest

from tests.host_cache.test_operators import SIZE, make
from wheelcache import ManualClock
from wheelcache.core.contract import MISSING
from wheelcache.django_backend import HostCache
from wheelcache.engine.loading.request import PLAIN

KEYS = [
    *(
        "",
        "\0",
        "a\0b",
        "\1",
        "\2",
        "\ud800",
        "é",
        "\0é",
        "\1é",
        "\2é",
        "\2\2é",
        "x" * 50_000,
        "('a', 1)",
        "\1('é', 1)",
    ),
    *(("é",), ("\0é",), ("a",), ("",), ("a", "b"), ("a", 1), ("é", 1), 7, -1, 2**70, 1.5, None, b"b"),
]


@pytest.fixture
def cache(tmp_path):
    cache = make(tmp_path, figures_dir=None, clock=ManualClock())
    yield cache
    cache.close()


def test_each_key_has_an_entry_of_its_own(cache):
    for number, key in enumerate(KEYS):
        cache.set(key, number)
    assert [cache.get(key) for key in KEYS] == [*range(len(KEYS))]
    assert [cache.delete(key) for key in KEYS] == [True] * len(KEYS)
    assert len(cache) == 0


def test_text_comes_back_from_a_walk_as_it_was_given(cache):
    texts = {key for key in KEYS if isinstance(key, str)}
    for key in texts:
        cache.set(key, 1)
    assert {*cache.keys()} == texts


@pytest.mark.parametrize("value", ["", "a\0b", "é" * 1000, 2**63 - 1, -(2**63), None], ids=ascii)
def test_a_value_of_the_database_comes_back_as_it_was_given(cache, value):
    cache.set("k", value)
    assert cache.get("k") == value
    assert cache.get_many(["k"]) == {"k": value}


TOO_LARGE = "x" * (SIZE // 8)


@pytest.mark.parametrize("key", ["k", "k" * SIZE], ids=["value", "key"])
def test_a_value_of_more_than_an_eighth_of_the_size_is_not_stored(cache, key):
    cache.set(key, TOO_LARGE)
    assert not cache.add(key, TOO_LARGE)
    assert cache.get_or_load(key, lambda: TOO_LARGE) == TOO_LARGE
    assert cache.get(key) is None
    assert len(cache) == 0


def test_it_leaves_no_older_value(cache):
    for store in (cache.set, lambda key, value: cache.set_many({key: value})):
        cache.set("k", "old")
        store("k", TOO_LARGE)
        assert cache.get("k") is None


def test_an_add_of_it_leaves_the_value_that_is_there(cache):
    cache.set("k", "old")
    assert not cache.add("k", TOO_LARGE)
    assert cache.get("k") == "old"


@pytest.mark.parametrize("size", [100, 5_000, SIZE // 9])
def test_the_bound_holds_after_each_write_and_the_newest_value_is_there(cache, size):
    for number in range(2_000):
        cache.set(f"small-{number}", "x" * 100)
    for number in range(300):
        cache.set(f"key-{number % 200}", "x" * size)
        assert cache.stats().weight <= SIZE
        assert cache.get(f"key-{number % 200}") is not None
    assert len(cache) > SIZE / (size + 200) / 2


FIRST_USES = {
    "load": lambda cache: cache.get_or_load("k", lambda: 1),
    "load that bypasses the look-up": lambda cache: cache.engine.loads().get(
        cache.engine.loads().request("k", lambda: 1, None, PLAIN), MISSING
    ),
}


@pytest.mark.parametrize("use", FIRST_USES.values(), ids=FIRST_USES)
def test_the_first_value_that_is_computed_is_kept(cache, use):
    assert use(cache) == 1
    assert cache.get("k") == 1


@pytest.mark.parametrize(
    "store",
    [
        lambda cache: cache.set("broken", print.__self__),
        lambda cache: cache.set("broken", print.__self__, tags=["tag"]),
        lambda cache: cache.add("broken", print.__self__),
        lambda cache: cache.set_many({"broken": print.__self__}),
        lambda cache: cache.get_or_set("broken", print.__self__),
    ],
    ids=["set", "set with tags", "add", "set_many", "get_or_set"],
)
def test_the_error_about_a_value_that_cannot_be_pickled_names_the_key(store, tmp_path):
    backend = HostCache(str(tmp_path / "host"), {"OPTIONS": {"FIGURES_DIR": None}})
    with pytest.raises(TypeError, match="cannot pickle 'module' object") as caught:
        store(backend)
    (note,) = caught.value.__notes__
    assert "broken" in note
    assert backend.get("broken") is None


@pytest.mark.parametrize("tag", ["\0", "a\0b", "\ud800", "é", "\x7f", "\\u0000", "\\", '"', "["], ids=ascii)
def test_a_tag_may_have_any_characters(cache, tag):
    cache.set("k", 1, tags=[tag, "other"])
    cache.delete_tags("\\0", "a\0", "\\ud800", "a\0bc", "\\\\")
    assert cache.get("k") == 1
    cache.delete_tags(tag)
    assert cache.get("k") is None
