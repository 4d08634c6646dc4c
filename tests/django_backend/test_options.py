"""The settings in CACHES: what is taken, what is refused, and in which words."""

import stat
import sys
import types
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
from tests.engines import engine
from wheelcache.django_backend import WheelCache, site_identity, stores
from wheelcache.errors import FileUnusable
from wheelcache.observability import figures_directory as figures_directory_module
from wheelcache.observability.figures_directory import FiguresDirectory
from wheelcache.runtime import private_files

COUNT_OR_NONE = "a whole number >= 1, or None"
WHOLE = "a whole number >= 0"
SERIALIZER = "'pickle', 'reference', or the dotted path"

raises = partial(pytest.raises, ImproperlyConfigured)

BACKEND = "wheelcache.django_backend.WheelCache"

NAN, INF = float("nan"), float("inf")

WRONG = [
    *(("MAX_ENTRIES", wrong, COUNT_OR_NONE) for wrong in (0, -1, "0", 1.5, "1.5", "many", True, NAN, [10], {}, b"1")),
    *(("CULL_FREQUENCY", wrong, WHOLE) for wrong in (-1, "-1", 3.5, "third", None, True, {1})),
    *(("SERIALIZER", wrong, SERIALIZER) for wrong in (None, 1, True, "", "json", "Pickle", "PICKLE", pytest, [], {})),
    *(("SERIALIZER", wrong, SERIALIZER) for wrong in ("no.such.module", "json.no_such_name", "json.dumps", "os.path")),
]


@pytest.mark.parametrize(("option", "wrong", "takes"), WRONG, ids=[f"{name}={wrong!r}" for name, wrong, _ in WRONG])
def test_a_wrong_option_is_an_error_that_names_it_and_what_it_takes_and_got(make, option, wrong, takes):
    with pytest.raises(ImproperlyConfigured) as refused:
        make({option: wrong})
    assert option in str(refused.value)
    assert takes in str(refused.value)
    assert repr(wrong) in str(refused.value)


# What goes wrong elsewhere than in a comparison: in int(), in float(), in an import, in a constructor.
@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        ("MAX_ENTRIES", INF),
        ("CULL_FREQUENCY", INF),
        ("SERIALIZER", ".json"),
        ("SERIALIZER", "..json"),
        ("SERIALIZER", "functools.partial"),
        ("SERIALIZER", "tests.django_backend.serializers.NeedsAnArgument"),
        ("SERIALIZER", "tests.django_backend.serializers.WithoutLoads"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_an_option_that_breaks_its_own_check_is_an_error_that_names_it(make, option, wrong):
    with pytest.raises(ImproperlyConfigured, match=option):
        make({option: wrong})


@pytest.mark.parametrize(
    ("option", "first", "wrong"),
    [("MAX_ENTRIES", 1, True), ("CULL_FREQUENCY", 0, False), ("SLOTS", 8, 8.0)],
)
def test_a_wrong_option_is_refused_even_if_a_store_with_an_equal_right_one_is_there(make, option, first, wrong):
    location = f"equal options {option} {wrong}"
    make({option: first}, location=location)
    with pytest.raises(ImproperlyConfigured, match=option):
        make({option: wrong}, location=location)


@pytest.mark.parametrize("name", ["TIMEOUT", "", 1, None, ("MAX", "AGE")])
def test_an_unknown_option_like_no_other_is_an_error_that_names_it_and_those_there_are(make, name):
    with pytest.raises(ImproperlyConfigured) as refused:
        make({name: 1})
    assert f"unknown option {name!r} of the cache" in str(refused.value)
    for known in stores.OPTIONS:
        assert known in str(refused.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("max_entries", "MAX_ENTRIES"), ("MAX_ENTRY", "MAX_ENTRIES"), ("JITER", "JITTER"), ("Coherence", "COHERENCE")],
)
def test_an_unknown_option_is_an_error_that_names_its_cache_and_what_was_meant(name, meant):
    pages = {"BACKEND": BACKEND, "OPTIONS": {name: 1}}
    with override_settings(CACHES={"default": {"BACKEND": BACKEND}, "pages": pages}), raises() as refused:
        caches["pages"]
    assert str(refused.value) == f"unknown option {name!r} of the cache 'pages'; did you mean {meant}?"


def test_all_unknown_options_are_named_at_once(make):
    with pytest.raises(ImproperlyConfigured, match=r"(?s)'MAX_AGE'.*'SHARDS'"):
        make({"MAX_AGE": 1, "SLOTS": 8, "SHARDS": 2})


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"LOCATION": "other"}, "the cache 'pages'"),
        ({"LOCATION": "same", "OPTIONS": {"SLOTS": 7.0}}, "the caches 'default' and 'pages'"),
    ],
)
def test_a_wrong_option_is_an_error_that_names_its_cache(other, named):
    pages = {"BACKEND": BACKEND, "LOCATION": "same", "OPTIONS": {"SLOTS": 7.0}}
    with override_settings(CACHES={"default": {"BACKEND": BACKEND, **other}, "pages": pages}), raises() as refused:
        caches["pages"]
    assert str(refused.value).startswith(f"Wrong setting of {named}: SLOTS must be ")


def test_a_backend_that_is_made_without_an_alias_is_named_by_its_location(make):
    with pytest.raises(ImproperlyConfigured, match="of the cache with the LOCATION 'nowhere': SLOTS"):
        make({"SLOTS": 0}, location="nowhere")


def kept(cache):
    """How many of 40 entries stay."""
    cache.set_many({str(number): number for number in range(40)})
    return len(cache.get_many(map(str, range(40))))


@pytest.mark.parametrize(("given", "most"), [("7", 7), (" 7 ", 7), (7.0, 7), ("1_0", 10), (1e6, 40)])
def test_numbers_of_entries_are_read_as_locmemcache_reads_them(make, given, most):
    assert kept(make({"MAX_ENTRIES": given})) == most
    theirs = LocMemCache(f"read {given!r}", {"OPTIONS": {"MAX_ENTRIES": given, "CULL_FREQUENCY": most}})
    assert kept(theirs) == most


@pytest.mark.parametrize("given", ["0", 0.0])
def test_the_cull_frequency_is_read_as_locmemcache_reads_it(make, given):
    cache = make({"MAX_ENTRIES": 5, "CULL_FREQUENCY": given})
    for number in range(6):
        cache.set(str(number), number)
    assert len(engine(cache)) == 1


def test_equal_numbers_of_entries_are_one_store_however_they_are_spelled(make):
    found = {make({"MAX_ENTRIES": given}, location="spelled").store for given in (7, 7.0, "7")}
    assert len(found) == 1


@pytest.mark.parametrize("beside", [{"max_entries": 7}, {"max_entries": "7"}])
def test_the_old_spelling_beside_options_counts_and_before_that_in_options_as_in_django(make, beside):
    assert kept(make(**beside)) == 7
    assert kept(make({"MAX_ENTRIES": 9}, **beside)) == 7
    assert kept(LocMemCache("old spelling", {"OPTIONS": {"MAX_ENTRIES": 9}, "cull_frequency": 7, **beside})) == 7


def test_the_old_spelling_of_the_cull_frequency_counts(make):
    cache = make({"MAX_ENTRIES": 5}, cull_frequency=0)
    for number in range(6):
        cache.set(str(number), number)
    assert len(engine(cache)) == 1


def test_a_wrong_number_in_the_old_spelling_is_an_error(make):
    with pytest.raises(ImproperlyConfigured, match=r"MAX_ENTRIES must be a whole number >= 1, or None.*not 'many'"):
        make(max_entries="many")


@pytest.mark.parametrize("wrong", [["a", "b"], None, 1, ("a",), b"a", {}])
def test_a_location_that_is_no_string_is_an_error_that_says_so(make, wrong):
    with pytest.raises(ImproperlyConfigured, match="LOCATION must be a string") as refused:
        WheelCache(wrong, {})
    assert repr(wrong) in str(refused.value)


@pytest.mark.parametrize("wrong", [["MAX_ENTRIES"], "MAX_ENTRIES", 5])
def test_options_that_are_no_mapping_are_an_error_that_names_them(wrong):
    with pytest.raises(ImproperlyConfigured, match="OPTIONS"):
        WheelCache("options are no mapping", {"OPTIONS": wrong})


def test_max_bytes_with_references_is_an_error_since_their_size_is_unknown(make):
    with pytest.raises(ImproperlyConfigured, match="MAX_BYTES must be None with SERIALIZER 'reference', not 4096"):
        make({"MAX_BYTES": 4096, "SERIALIZER": "reference"})


def test_a_refused_setting_leaves_no_store_behind(make):
    with pytest.raises(ImproperlyConfigured):
        make({"SLOTS": -1}, location="refused")
    with pytest.raises(ImproperlyConfigured):
        make({"MAX_BYTES": 1, "SERIALIZER": "reference"}, location="refused")
    assert "refused" not in [each.name for each in wheelcache.caches()]


@pytest.mark.parametrize(
    "options",
    [
        {"MAX_ENTRIES": None},
        {"MAX_BYTES": None, "SERIALIZER": "reference"},
        {"CULL_FREQUENCY": 0},
        {"CULL_FREQUENCY": 10**9},
        {"SERIALIZER": "pickle"},
        {"SERIALIZER": "tests.django_backend.serializers.Json"},
        {"SERIALIZER": "django.core.signing.JSONSerializer"},
    ],
)
def test_a_right_option_makes_a_cache_that_works(make, options):
    cache = make(options)
    cache.set("key", ["value"], 60)
    assert cache.get("key") == ["value"]


def test_ten_thousand_entries_are_kept_unless_told_otherwise():
    cache = WheelCache("ten thousand", {"OPTIONS": {}})
    cache.set_many({str(number): number for number in range(10_001)})
    assert len(engine(cache)) == 10_000
    assert cache.get("0") is None
    assert cache.get("10000") == 10_000


def test_no_bound_on_entries_is_none(make):
    cache = make({"MAX_ENTRIES": None})
    cache.set_many({str(number): number for number in range(10_001)})
    assert len(engine(cache)) == 10_001


def test_the_serializer_of_a_dotted_path_does_the_work(make):
    cache = make({"SERIALIZER": "tests.django_backend.serializers.Json"})
    cache.set("key", {"a": (1, 2)})
    assert cache.get("key") == {"a": [1, 2]}


def test_the_serializer_of_a_dotted_path_may_be_an_object(make):
    cache = make({"SERIALIZER": "tests.django_backend.serializers.AN_OBJECT"})
    cache.set("key", {"a": (1, 2)})
    assert cache.get("key") == {"a": [1, 2]}


def test_counters_work_whatever_the_serializer(make):
    cache = make({"SERIALIZER": "tests.django_backend.serializers.Json"})
    cache.set("count", 41)
    assert cache.incr("count") == 42
    assert cache.decr("count", 2) == 40


def test_a_serializer_that_returns_no_bytes_is_an_error_at_the_set_that_stores_nothing(make):
    cache = make({"SERIALIZER": "tests.django_backend.serializers.ReturnsText"})
    with pytest.raises(TypeError, match=r"dumps\(\) must return bytes, not '\[\]'"):
        cache.set("key", [])
    assert "key" not in cache


@pytest.mark.parametrize("version", [2, "v2"])
def test_timeout_key_prefix_and_version_are_django_s(make, clock, version):
    cache = make(TIMEOUT=10, KEY_PREFIX="site", VERSION=version)
    cache.set("key", 1)
    assert engine(cache).keys() == [default_key_func("key", "site", version)]
    clock.advance(9)
    assert cache.get("key") == 1
    clock.advance(1)
    assert cache.get("key") is None


@pytest.mark.parametrize(("timeout", "seconds"), [("60", 60), ("soon", 300), ([], 300), (1.9, 1), (None, None)])
def test_timeout_is_read_as_leniently_as_django_reads_it(make, clock, timeout, seconds):
    cache = make(TIMEOUT=timeout)
    cache.set("key", 1)
    assert engine(cache).expires_in(":1:key") == seconds


def test_a_wrong_setting_is_an_error_at_the_first_use_of_its_alias_only(settings):
    settings.CACHES = {
        "default": {"BACKEND": "wheelcache.django_backend.WheelCache"},
        "wrong": {"BACKEND": "wheelcache.django_backend.WheelCache", "OPTIONS": {"MAX_ENTRIES": "many"}},
    }
    caches["default"].set("key", 1)
    with pytest.raises(ImproperlyConfigured, match=r"MAX_ENTRIES must be a whole number >= 1, or None.*not 'many'"):
        caches["wrong"]
    assert caches["default"].get("key") == 1


def test_the_option_of_a_serializer_is_imported_once_however_many_backends_are_made(make, monkeypatch):
    made = []
    monkeypatch.setattr(serializers.Json, "__init__", lambda self: made.append(self))
    for _ in range(5):
        make({"SERIALIZER": "tests.django_backend.serializers.Json"}, location="imported once")
    assert len(made) == 1
    assert "tests.django_backend.serializers" in sys.modules


def test_figures_are_published_in_a_directory_of_the_site_that_is_the_same_for_all_its_aliases(make, clock):
    for number in (1, 2):
        make({"MAX_ENTRIES": number}, location=f"published {number}").set("key", 1)
    clock.advance(10)
    directory = site_identity.figures_directory()
    assert {"published 1", "published 2"} <= {each.name for each in FiguresDirectory(directory).read()}
    assert directory.parent == private_files.runtime_directory()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The figures directory of a project that is installed in a folder: one settings module, one SECRET_KEY."""
    monkeypatch.setattr(figures_directory_module, "runtime_directory", lambda: tmp_path)

    def directory(folder, **configured):
        (tmp_path / folder).mkdir(exist_ok=True)
        with override_settings(BASE_DIR=tmp_path / folder, **configured):
            return site_identity.figures_directory()

    return directory


def test_two_sites_that_share_the_secret_key_and_the_settings_module_are_told_by_their_base_directory(installed):
    assert installed("one") == installed("one")
    assert installed("one") != installed("two")
    assert installed("one", SECRET_KEY="another") != installed("one")
    assert installed("one", SECRET_KEY="") != installed("two", SECRET_KEY="")


def test_a_link_to_the_base_directory_is_the_same_site(installed, tmp_path):
    there = installed("one")
    (tmp_path / "current").symlink_to(tmp_path / "one")
    assert installed("current") == there


def test_without_a_base_directory_the_place_of_the_settings_module_tells(installed, tmp_path, monkeypatch):
    found = []
    for folder in ("one", "two"):
        module = types.ModuleType("shop.settings")
        module.__file__ = str(tmp_path / folder / "settings.py")
        monkeypatch.setitem(sys.modules, "shop.settings", module)
        with override_settings(SETTINGS_MODULE="shop.settings"):
            found.append(site_identity.figures_directory())
    assert found[0] != found[1]


def test_figures_dir_may_be_a_path_and_equal_ones_are_one_store(make, tmp_path):
    stores = [make({"FIGURES_DIR": kind(tmp_path / "figures")}, location="one").store for kind in (str, Path)]
    assert stores[0] is stores[1]


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
