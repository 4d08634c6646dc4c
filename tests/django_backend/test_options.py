"""The settings in CACHES: accepted values, refused values, and the messages."""

import stat
import sys
import types
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from django.core.cache import caches
from django.core.cache.backends.base import default_key_func
from django.core.cache.backends.locmem import LocMemCache
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

import wheelcache
from tests.django_backend import serializers
from tests.django_backend.conftest import BACKEND, LOCMEM
from tests.engines import engine
from tests.guests import needs
from wheelcache.django_backend import WheelCache, site_settings, stores
from wheelcache.engine.guests import module_of
from wheelcache.errors import FileUnusable
from wheelcache.runtime import private_files

figures_directory_module = module_of("watch", "figures_directory")

COUNT_OR_NONE = "a whole number >= 1, or None"
SERIALIZER = "'pickle', 'reference', or the dotted path"
JSON = "tests.django_backend.serializers.Json"
NAN, INF = float("nan"), float("inf")

raises = partial(pytest.raises, ImproperlyConfigured)

WRONG = [
    *(("MAX_ENTRIES", wrong, COUNT_OR_NONE) for wrong in (0, -1, "0", 1.5, "many", True, NAN, INF, [10], {}, b"1")),
    *(("CULL_FREQUENCY", wrong, "a whole number >= 0") for wrong in (-1, "-1", 3.5, "third", None, True, {1}, INF)),
    *(("SERIALIZER", wrong, SERIALIZER) for wrong in (None, 1, True, "", "json", "PICKLE", pytest, [], {})),
    *(("SERIALIZER", wrong, SERIALIZER) for wrong in ("no.such.module", "json.no_such_name", "json.dumps", "..json")),
    # Errors in a constructor, and a serializer without its methods.
    *(("SERIALIZER", f"tests.django_backend.serializers.{name}", "") for name in ("NeedsAnArgument", "WithoutLoads")),
]


@pytest.mark.parametrize(("option", "wrong", "takes"), WRONG, ids=[f"{name}={wrong!r}" for name, wrong, _ in WRONG])
def test_a_wrong_option_is_an_error_that_names_it_and_what_it_takes_and_got(make, option, wrong, takes):
    with raises() as refused:
        make({option: wrong})
    for part in (option, takes, repr(wrong)):
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("option", "first", "wrong"),
    [("MAX_ENTRIES", 1, True), ("CULL_FREQUENCY", 0, False), ("MAX_BYTES", 8, 8.0)],
)
def test_a_wrong_option_is_refused_even_if_a_store_with_an_equal_right_one_is_there(make, option, first, wrong):
    location = f"equal options {option} {wrong}"
    make({option: first}, location=location)
    with raises(match=option):
        make({option: wrong}, location=location)


@pytest.mark.parametrize("name", ["TIMEOUT", "", 1, None, ("MAX", "AGE")])
def test_an_unknown_option_like_no_other_is_an_error_that_names_it_and_those_there_are(make, name):
    with raises() as refused:
        make({name: 1, "JITTER": 0.8, "SHARDS": 2, "SLOTS": 8})
    for unknown in ("SHARDS", "SLOTS", name):
        assert repr(unknown) in str(refused.value)
    assert all(known in str(refused.value) for known in stores.OPTIONS)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("max_entries", "MAX_ENTRIES"),
        ("MAX_ENTRY", "MAX_ENTRIES"),
        ("JITER", "JITTER"),
        pytest.param("Grace", "GRACE", marks=needs("fill_waits")),
    ],
)
def test_an_unknown_option_is_an_error_that_names_its_cache_and_what_was_meant(name, meant):
    pages = {"BACKEND": BACKEND, "OPTIONS": {name: 1}}
    with override_settings(CACHES={"default": {"BACKEND": BACKEND}, "pages": pages}), raises() as refused:
        caches["pages"]
    assert str(refused.value) == f"unknown option {name!r} of the cache 'pages'; did you mean {meant}?"


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"LOCATION": "other"}, "the cache 'pages'"),
        ({"LOCATION": "same", "OPTIONS": {"JITTER": "7"}}, "the caches 'default' and 'pages'"),
    ],
)
def test_a_wrong_option_is_an_error_that_names_its_cache(other, named):
    pages = {"BACKEND": BACKEND, "LOCATION": "same", "OPTIONS": {"JITTER": "7"}}
    with override_settings(CACHES={"default": {"BACKEND": BACKEND, **other}, "pages": pages}), raises() as refused:
        caches["pages"]
    assert str(refused.value).startswith(f"Wrong setting of {named}: JITTER must be ")


def test_a_wrong_option_is_an_error_at_the_first_use_of_its_alias_only_and_leaves_no_store_behind(make):
    wrong = {"BACKEND": BACKEND, "LOCATION": "refused", "OPTIONS": {"MAX_ENTRIES": "many"}}
    with override_settings(CACHES={"default": {"BACKEND": BACKEND}, "wrong": wrong}):
        caches["default"].set("key", 1)
        with raises(match=r"MAX_ENTRIES must be a whole number >= 1, or None.*not 'many'"):
            caches["wrong"]
        assert caches["default"].get("key") == 1
    with raises(match="of the cache with the LOCATION 'refused': JITTER"):
        make({"JITTER": 1}, location="refused")
    with raises(match="MAX_BYTES must be None with SERIALIZER 'reference', not 4096"):
        make({"MAX_BYTES": 4096, "SERIALIZER": "reference"}, location="refused")
    assert "refused" not in [each.name for each in wheelcache.caches()]


@pytest.mark.parametrize("wrong", [["a", "b"], None, 1, b"a"])
def test_a_location_that_is_no_string_and_options_that_are_no_mapping_are_errors(wrong):
    for args, name in (((wrong, {}), "LOCATION must be a string"), (("none", {"OPTIONS": wrong}), "OPTIONS")):
        with raises(match=name) as refused:
            WheelCache(*args)
        assert repr(wrong) in str(refused.value)


# The effects of the options.


def kept(cache):
    """Return how many of 40 entries stay."""
    cache.set_many({str(number): number for number in range(40)})
    return len(cache.get_many(map(str, range(40))))


@pytest.mark.parametrize(("given", "most"), [("7", 7), (" 7 ", 7), (7.0, 7), ("1_0", 10), (1e6, 40)])
def test_numbers_of_entries_are_read_as_locmemcache_reads_them(make, given, most):
    assert kept(make({"MAX_ENTRIES": given})) == most
    theirs = LocMemCache(f"read {given!r}", {"OPTIONS": {"MAX_ENTRIES": given, "CULL_FREQUENCY": most}})
    assert kept(theirs) == most


def test_equal_options_are_one_store_however_they_are_spelled(make):
    assert len({make({"MAX_ENTRIES": given}, location="spelled").store for given in (7, 7.0, "7")}) == 1


@needs("watch")
def test_so_are_equal_directories(make, tmp_path):
    assert len({make({"FIGURES_DIR": kind(tmp_path / "f")}, location="spelled").store for kind in (str, Path)}) == 1


@pytest.mark.parametrize("beside", [{"max_entries": 7}, {"max_entries": "7"}])
def test_the_old_spelling_beside_options_counts_and_before_that_in_options_as_in_django(make, beside):
    assert kept(make(**beside)) == 7
    assert kept(make({"MAX_ENTRIES": 9}, **beside)) == 7
    assert kept(LocMemCache("old spelling", {"OPTIONS": {"MAX_ENTRIES": 9}, "cull_frequency": 7, **beside})) == 7
    with raises(match=r"MAX_ENTRIES must be a whole number >= 1, or None.*not 'many'"):
        make(max_entries="many")


def test_ten_thousand_entries_are_kept_unless_told_otherwise_and_all_if_max_entries_is_none(make):
    for cache, size in ((WheelCache("ten thousand", {"OPTIONS": {}}), 10_000), (make({"MAX_ENTRIES": None}), 10_001)):
        cache.set_many({str(number): number for number in range(10_001)})
        assert len(engine(cache)) == size
        assert (cache.get("0") is None) is (size == 10_000)


@pytest.mark.parametrize(
    "serializer",
    ["pickle", "reference", "django.core.signing.JSONSerializer", "tests.django_backend.serializers.AN_OBJECT"],
)
def test_each_kind_of_serializer_works(make, serializer):
    cache = make({"SERIALIZER": serializer})
    cache.set("key", ["value"], 60)
    assert cache.get("key") == ["value"]


def test_a_serializer_is_imported_once_and_does_the_work_but_of_counters(make, monkeypatch):
    made = []
    monkeypatch.setattr(serializers.Json, "__init__", lambda self: made.append(self))
    cache = [make({"SERIALIZER": JSON}, location="imported once") for _ in range(5)][-1]
    assert len(made) == 1
    cache.set("key", {"a": (1, 2)})
    assert cache.get("key") == {"a": [1, 2]}
    cache.set("count", 41)
    assert (cache.incr("count"), cache.decr("count", 2)) == (42, 40)


def test_a_serializer_that_returns_no_bytes_is_an_error_at_the_set_that_stores_nothing(make):
    cache = make({"SERIALIZER": "tests.django_backend.serializers.ReturnsText"})
    with pytest.raises(TypeError, match=r"dumps\(\) must return bytes, not '\[\]'"):
        cache.set("key", [])
    assert "key" not in cache


@pytest.mark.parametrize("version", [2, "v2"])
@pytest.mark.parametrize(("timeout", "seconds"), [(10, 10), ("60", 60), (1.9, 1), (None, None)])
def test_timeout_key_prefix_and_version_are_read_as_django_reads_them(make, clock, version, timeout, seconds):
    cache = make(TIMEOUT=timeout, KEY_PREFIX="site", VERSION=version)
    cache.set("key", 1)
    assert engine(cache).keys() == [default_key_func("key", "site", version)]
    assert engine(cache).expires_in(default_key_func("key", "site", version)) == seconds


WRONG_TIMEOUTS = ["soon", "1.5", [], float("nan"), float("inf"), -float("inf"), 10**400, True, timedelta(1)]


@pytest.mark.parametrize("kind", ["WheelCache", pytest.param("TieredCache", marks=needs("near_cache"))])
@pytest.mark.parametrize("wrong", WRONG_TIMEOUTS, ids="{!r:.20}".format)
def test_a_wrong_timeout_of_the_settings_is_an_error_though_django_would_read_it_as_300(wrong, kind):
    """Also if another alias has the same LOCATION and OPTIONS, and so the same store."""
    right = {"BACKEND": f"wheelcache.django_backend.{kind}", "LOCATION": "timeouts"}
    if kind == "TieredCache":
        right["OPTIONS"] = {"L2": "other"}
    configured = {
        "default": {**right, "TIMEOUT": 5},
        "wrong": {**right, "TIMEOUT": wrong},
        "other": {"BACKEND": LOCMEM},
    }
    with override_settings(CACHES=configured):
        assert caches["default"].default_timeout == 5
        with raises(
            match="^Wrong setting of the cache 'wrong': TIMEOUT must be a number of seconds .* or None"
        ) as refused:
            caches["wrong"]
    assert f"not {wrong!r}"[:200] in str(refused.value)


@pytest.mark.parametrize("wrong", ["x" * 10_000, list(range(10_000))], ids=type)
def test_a_long_value_is_cut_in_the_message_and_nothing_else_is(make, wrong):
    with raises() as refused:
        make({"JITTER": wrong}, location="cut")
    message = str(refused.value)
    assert message.startswith("Wrong setting of the cache with the LOCATION 'cut': JITTER must be a fraction")
    assert message.endswith(f"not {repr(wrong)[:200]}....")


# Where figures are published.


@needs("watch")
def test_figures_are_published_in_a_directory_of_the_site_that_is_the_same_for_all_its_aliases(make, clock):
    for number in (1, 2):
        make({"MAX_ENTRIES": number}, location=f"published {number}").set("key", 1)
    clock.advance(10)
    directory = site_settings.figures_directory()
    from tests.watch import published

    assert {"published 1", "published 2"} <= {each.name for each in published.look(directory).caches}
    assert directory.parent == private_files.runtime_directory()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The figures directory of a project that is installed in a folder: one settings module, one SECRET_KEY."""
    monkeypatch.setattr(figures_directory_module, "runtime_directory", lambda: tmp_path)

    def directory(folder, **configured):
        (tmp_path / folder).mkdir(exist_ok=True)
        with override_settings(BASE_DIR=tmp_path / folder, **configured):
            return site_settings.figures_directory()

    return directory


@needs("watch")
def test_sites_of_one_secret_key_and_settings_module_are_told_by_their_base_directory(installed, tmp_path):
    one = installed("one")
    assert installed("one") == one != installed("two")
    assert installed("one", SECRET_KEY="another") != one
    assert installed("one", SECRET_KEY="") != installed("two", SECRET_KEY="")
    (tmp_path / "current").symlink_to(tmp_path / "one")
    assert installed("current") == one


@needs("watch")
def test_without_a_base_directory_the_place_of_the_settings_module_tells(installed, tmp_path, monkeypatch):
    found = []
    for folder in ("one", "two"):
        module = types.ModuleType("shop.settings")
        module.__file__ = str(tmp_path / folder / "settings.py")
        monkeypatch.setitem(sys.modules, "shop.settings", module)
        with override_settings(SETTINGS_MODULE="shop.settings"):
            found.append(site_settings.figures_directory())
    assert found[0] != found[1]


@needs("watch")
@pytest.mark.parametrize("options", [{"FIGURES_DIR": None}, {}], ids=["none is wanted", "none is private"])
def test_without_a_directory_of_this_user_alone_nothing_is_published(make, clock, monkeypatch, caplog, options):
    def refuse():
        raise FileUnusable("it is another user's")

    monkeypatch.setattr(figures_directory_module, "runtime_directory", refuse)
    cache = make(options)
    assert ("are not published" in caplog.text) is (not options)
    cache.set("a", 1)
    clock.advance(10)
    assert cache.get("a") == 1
