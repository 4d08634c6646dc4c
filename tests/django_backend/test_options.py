"""The settings in CACHES: accepted values, refused values, and the messages."""

from datetime import timedelta
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from asgiref.sync import async_to_sync
from django.core.cache import caches
from django.core.cache.backends.base import default_key_func
from django.core.cache.backends.locmem import LocMemCache
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

import wheelcache
from tests.django_backend import serializers
from tests.django_backend.conftest import BACKEND
from tests.engines import engine
from tests.guests import needs
from wheelcache.django_backend import WheelCache, site_settings, stores
from wheelcache.engine.guests import module_of
from wheelcache.errors import FileUnusable
from wheelcache.runtime import private_files

figures_directory_module = module_of("watch", "figures_directory")

COUNT_OR_NONE = "a whole number >= 1, or None"
SERIALIZER = "'pickle', 'reference', or the dotted path"
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
    ("other", "options", "message"),
    [
        ({}, {"max_entries": 1}, "unknown option 'max_entries' of the cache 'pages'; did you mean MAX_ENTRIES?"),
        ({}, {"JITER": 1}, "unknown option 'JITER' of the cache 'pages'; did you mean JITTER?"),
        ({"LOCATION": "other"}, {"JITTER": "7"}, "Wrong setting of the cache 'pages': JITTER must be "),
        ({"OPTIONS": {"JITTER": "7"}}, {"JITTER": "7"}, "Wrong setting of the caches 'default' and 'pages': JITTER"),
    ],
)
def test_the_error_of_an_option_names_its_cache_and_what_may_be_meant(other, options, message):
    configured = {"default": {"BACKEND": BACKEND, **other}, "pages": {"BACKEND": BACKEND, "OPTIONS": options}}
    with override_settings(CACHES=configured), raises() as refused:
        caches["pages"]
    assert str(refused.value).startswith(message)


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
    # An old spelling comes first, as in Django.
    for backend in (make, lambda options, **given: LocMemCache("old", {"OPTIONS": options, **given})):
        assert kept(backend({"MAX_ENTRIES": given, "CULL_FREQUENCY": 3}, max_entries=3)) == 3


@pytest.mark.parametrize("option", ["MAX_ENTRIES", pytest.param("FIGURES_DIR", marks=needs("watch"))])
def test_equal_options_are_one_store_however_they_are_spelled(make, option, tmp_path):
    given = {"MAX_ENTRIES": (7, 7.0, "7"), "FIGURES_DIR": (str(tmp_path / "f"), tmp_path / "f")}[option]
    assert len({make({option: each}, location=f"spelled {option}").store for each in given}) == 1


def test_ten_thousand_entries_are_kept_unless_told_otherwise_and_all_if_max_entries_is_none(make):
    for cache, size in ((WheelCache("ten thousand", {"OPTIONS": {}}), 10_000), (make({"MAX_ENTRIES": None}), 10_001)):
        cache.set_many({str(number): number for number in range(10_001)})
        assert len(engine(cache)) == size
        assert (cache.get("0") is None) is (size == 10_000)


JSON = "tests.django_backend.serializers.Json"
SERIALIZERS = [
    "pickle",
    "reference",
    "django.core.signing.JSONSerializer",
    "tests.django_backend.serializers.AN_OBJECT",
]


@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_each_kind_of_serializer_works(make, serializer):
    cache = make({"SERIALIZER": serializer})
    cache.set_many({"key": (value := ["value"]), "count": 41}, 60)
    assert cache.get("key") == value
    assert (cache.get("key") is value) is (serializer == "reference")
    assert (cache.incr("count"), cache.decr("count", 2)) == (42, 40)


def test_a_serializer_is_made_once_and_gets_every_value_but_ints_and_none_by_every_write(make, monkeypatch):
    made = []
    monkeypatch.setattr(serializers.Json, "__init__", lambda self: made.append(self))
    cache = [make({"SERIALIZER": JSON}, location="imported once") for _ in range(3)][-1]
    assert len(made) == 1
    writes = {
        "set": cache.set,
        "add": cache.add,
        "set_many": lambda key, value: cache.set_many({key: value}),
        "aget_or_set": async_to_sync(cache.aget_or_set),
    }
    for name, write in writes.items():
        for value in ("text", 1.5, [], True, 1, None):
            cache.clear()
            write(name, value)
            stored = engine(cache).get(f":1:{name}", "missing")
            assert (isinstance(stored, bytes) or stored) == (value if value is None or type(value) is int else True)
            assert cache.get(name, "missing") == value


def test_a_serializer_that_returns_no_bytes_is_an_error_at_the_set_that_stores_nothing(make):
    cache = make({"SERIALIZER": "tests.django_backend.serializers.ReturnsText"})
    with pytest.raises(TypeError, match=r"dumps\(\) must return bytes, not '\[\]'"):
        cache.set("key", [])
    assert "key" not in cache


@pytest.mark.parametrize(("timeout", "seconds"), [(10, 10), ("60", 60), (1.9, 1), (None, None)])
def test_the_timeout_of_the_settings_is_read_as_django_reads_it(make, clock, timeout, seconds):
    cache = make(TIMEOUT=timeout, KEY_PREFIX="site", VERSION="v2")
    cache.set("key", 1)
    assert engine(cache).expires_in(default_key_func("key", "site", "v2")) == seconds


WRONG_TIMEOUTS = ["soon", "1.5", [], float("nan"), float("inf"), -float("inf"), 10**400, True, timedelta(1)]


@pytest.mark.parametrize("wrong", WRONG_TIMEOUTS, ids="{!r:.20}".format)
def test_a_wrong_timeout_of_the_settings_is_an_error_though_django_would_read_it_as_300(wrong):
    """Also if another alias has the same LOCATION and OPTIONS, and so the same store."""
    right = {"BACKEND": BACKEND, "LOCATION": "timeouts"}
    with override_settings(CACHES={"default": {**right, "TIMEOUT": 5}, "wrong": {**right, "TIMEOUT": wrong}}):
        assert caches["default"].default_timeout == 5
        with raises() as refused:
            caches["wrong"]
    message = str(refused.value)
    assert message.startswith("Wrong setting of the cache 'wrong': TIMEOUT must be a number of seconds ")
    # A long value is cut.
    assert message.endswith(f"not {wrong!r}." if wrong != 10**400 else f"not {'1' + '0' * 199}....")


# The site.


def test_a_site_is_known_by_its_base_directory(tmp_path, settings, monkeypatch):
    def identity(base):
        settings.BASE_DIR = base
        return site_settings.site_identity("figures")

    (tmp_path / "link").symlink_to(tmp_path)
    assert identity(tmp_path) == identity(str(tmp_path)) == identity(tmp_path / "link") != identity(tmp_path.parent)
    # Without one, by the directory of the settings module, or the working directory.
    assert identity(None) == identity(Path.cwd())
    monkeypatch.setattr(site_settings, "site_name", lambda: "tests.settings")
    assert identity(None) == identity(Path.cwd() / "tests")
    settings.SECRET_KEY = ""
    assert identity(tmp_path) != identity(tmp_path.parent)


@needs("watch")
def test_a_release_is_a_text_of_at_most_64_characters(make, settings, monkeypatch):
    names = []
    monkeypatch.setattr(module_of("watch", "releases"), "name_release", names.append)
    for right in ("", "r" * 64):
        settings.WHEELCACHE_RELEASE = right
        make()
    assert names == ["r" * 64]
    for wrong in ("r" * 65, 7, None):
        settings.WHEELCACHE_RELEASE = wrong
        with raises(match="WHEELCACHE_RELEASE must be a string of at most 64 characters, not"):
            make()


# Where figures are published.


@needs("watch")
def test_figures_are_published_in_a_directory_of_the_site_that_is_the_same_for_all_its_aliases(make, clock):
    from tests.watch import published

    for number in (1, 2):
        make({"MAX_ENTRIES": number}, location=f"published {number}").set("key", 1)
    clock.advance(10)
    directory = site_settings.figures_directory()
    assert {"published 1", "published 2"} <= {each.name for each in published.look(directory).caches}
    assert directory.parent == private_files.runtime_directory()


@needs("watch")
@pytest.mark.parametrize("options", [{"FIGURES_DIR": None}, {}], ids=["none is wanted", "none is private"])
def test_without_a_directory_of_this_user_alone_nothing_is_published(make, monkeypatch, caplog, options):
    refuse = mock.Mock(side_effect=FileUnusable("it is another user's"))
    monkeypatch.setattr(figures_directory_module, "runtime_directory", refuse)
    cache = make(options)
    assert ("are not published" in caplog.text) is (not options)
    cache.set("a", 1)
    assert cache.get("a") == 1
