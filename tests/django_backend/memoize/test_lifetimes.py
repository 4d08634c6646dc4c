"""Aliases, versions, timeouts, loading, methods and tags of memoized functions."""

import os
import subprocess
import sys

import pytest
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from django.utils import translation

from tests.django_backend.memoize.sites import DUMMY, Counted, locmem, tiered, wheel
from tests.guests import needs
from tests.waiting import PATIENCE, until
from wheelcache.django_backend import memoize


def test_functions_are_decorated_before_django_is_set_up():
    code = """
from wheelcache import KEEP
from wheelcache.django_backend import memoize

@memoize(60)
def load(user, page="a"):
    return [page]

import django
from django.conf import settings
settings.configure(CACHES={"default": {"BACKEND": "wheelcache.django_backend.WheelCache"}})
django.setup()
print(load(1), load(1), load.cache_stats().calls)
"""
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert done.stdout == "['a'] ['a'] 1\n"


def test_the_alias_is_the_callers_choice_and_its_values_are_its_own(site):
    count = Counted()
    load = memoize(cache="other")(lambda key: count())
    load("a")
    caches["default"].clear()
    assert load("a") == [1]
    caches["other"].clear()
    assert load("a") == [2]
    with pytest.raises(ImproperlyConfigured, match="doesn't exist"):
        memoize(cache="unknown")(lambda: 1)()


def test_versions_have_values_of_their_own(any_site):
    counts = [Counted(), Counted()]

    def define(version, count):
        @memoize(version=version)
        def load(key):
            return count(key)

        return load

    old, new = (define(version, count) for version, count in zip((1, 2), counts, strict=True))
    assert [old("a"), new("a"), old("a"), new("a")] == [[1]] * 4
    assert old.cache_delete("a") is True
    assert [old("a"), new("a")] == [[2], [1]]


def test_the_cache_is_looked_up_again_after_a_test_has_overridden_the_settings(site):
    count = Counted()
    load = memoize(60)(lambda key: count())
    assert load("a") == [1]
    with override_settings(CACHES={"default": {"BACKEND": DUMMY}}):
        assert [load("a"), load("a")] == [[2], [3]]
    with override_settings(CACHES={"default": wheel()}):
        assert [load("a"), load("a")] == [[4], [4]]


@pytest.mark.parametrize(
    ("timeout", "times"),
    [
        ((), (9.9, 10)),
        ((20,), (19.9, 20)),
        ((2.5,), (2.4, 2.5)),
        ((None,), (1e9, None)),
        ((0,), (None, 0)),
        ((-1,), (None, 0)),
    ],
)
def test_the_timeout_has_djangos_meaning(clock, timeout, times):
    kept, over = times
    with override_settings(CACHES={"default": wheel(TIMEOUT=10)}):
        count = Counted()
        load = memoize(*timeout)(lambda key: count())
        load("a")
        if kept is not None:
            clock.advance(kept)
            assert load("a") == [1]
        if over is not None:
            clock.advance(over - (kept or 0))
            assert load("a") == [2]


@needs("near_cache")
def test_a_cache_that_caches_nothing_takes_every_option_and_others_refuse_those_of_a_wheel_cache():
    load = memoize(60, grace=60, negative_ttl=5)(lambda key: key)
    with override_settings(CACHES={"default": {"BACKEND": DUMMY}}):
        assert load("a") == "a"
    for kind in (locmem, tiered):
        with (
            override_settings(CACHES={"default": kind(), "second": locmem()}),
            pytest.raises(ImproperlyConfigured, match=r"need a WheelCache or a HostCache, .* cache 'default' is a"),
        ):
            load("a")


def test_a_stale_value_is_served_while_it_is_computed_again_in_the_callers_language(site, clock):
    with override_settings(CACHES={"default": wheel()}):
        languages = []

        @memoize(10, grace=60)
        def load(key):
            languages.append(translation.get_language())
            return [len(languages)]

        assert load("a") == [1]
        clock.advance(11)
        with translation.override("fr"):
            assert load("a") == [1]
            assert until(lambda: load("a") == [2])
        assert languages[1] == "fr"
        assert load.cache_stats().calls == 2


def test_a_hit_past_refresh_ahead_starts_a_refresh(clock):
    with override_settings(CACHES={"default": wheel()}):
        count = Counted()
        load = memoize(10, refresh_ahead=0.5)(lambda key: count())
        assert [load("a"), load("a")] == [[1], [1]]
        clock.advance(6)
        assert load("a") == [1]
        assert until(lambda: load("a") == [2])


def test_a_none_may_have_a_shorter_life(clock):
    with override_settings(CACHES={"default": wheel()}):
        computed = []
        load = memoize(60, negative_ttl=5)(lambda key: computed.append(key))
        for seconds in (0, 4, 1):
            clock.advance(seconds)
            assert load("a") is None
        assert computed == ["a", "a"]


def test_methods_are_memoized_by_instance(site):
    class Shop:
        def __init__(self, name):
            self.name = name

        @memoize(60)
        def price(self, item):
            return [self.name, item]

        def __hash__(self):
            return hash(self.name)

        def __eq__(self, other):
            return self.name == other.name

    assert Shop("a").price(1) == Shop("a").price(item=1) == ["a", 1]
    assert Shop("b").price(1) == ["b", 1]
    assert Shop.price.cache_stats().calls == 2
    assert Shop("b").price.cache_delete(item=1)
    assert not Shop("b").price.cache_delete(1)
    assert Shop.price.cache_delete(Shop("a"), 1)


def test_a_method_whose_instances_are_compared_by_identity_is_reported_once(site, caplog):
    class View:
        @memoize(60)
        def body(self, page):
            return [page]

        @memoize(60, key=lambda self, page: page)
        def head(self, page):
            return [page]

    for view in [View() for _ in range(100)]:
        view.body(1)
        view.head(1)
    assert View.head.cache_stats().calls == 1
    (line,) = [each for each in caplog.messages if "are compared by identity" in each]
    assert "View.body() are kept" in line


def test_values_that_have_a_grace_leave_with_their_tags_and_those_of_other_caches_stay(site):
    function = Counted()
    load = memoize(60, grace=10, tags=lambda user, **options: (f"user:{user}", *options))(
        lambda user, **options: function(user, **options)
    )
    fixed = memoize(60, tags=["all"])(lambda: function("fixed"))
    for _ in range(2):
        assert [load(1), load(2), load(2, long=True), fixed()] == [[1], [2], [3], [4]]
    caches["default"].delete_tags("user:1", "all")
    caches["other"].delete_tags("long")
    assert [load(1), load(2), load(2, long=True), fixed()] == [[5], [2], [3], [6]]
    caches["default"].delete_tags("long")
    assert load(2, long=True) == [7]


def test_tags_need_a_cache_that_can_drop_them(any_site):
    function = Counted()
    load = memoize(60, tags=["a"])(lambda: function())
    if any_site == "locmem":
        with pytest.raises(
            ImproperlyConfigured, match=r"its tags one of these or a TieredCache, and the cache 'default' is a Loc"
        ):
            load()
    else:
        assert [load(), load()] == [[1], [1]]
        caches["default"].delete_tags("a")
        assert load() == [2]


def test_a_dummy_cache_accepts_tags():
    with override_settings(CACHES={"default": {"BACKEND": DUMMY}}):
        assert memoize(60, tags=["a"])(lambda: 1)() == 1
