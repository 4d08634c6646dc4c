"""``wheelcache.django_backend.memoize``: keys, errors, aliases, lifetimes.

``tests/backends`` tests the behavior that it shares with Flask, ``tests/loading`` the engine's ``memoize``.
"""

import os
import subprocess
import sys
import threading
from itertools import count
from typing import NamedTuple

import pytest
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.db.models.manager import BaseManager
from django.http import HttpRequest
from django.test import RequestFactory, override_settings
from django.utils import translation
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext_lazy

from tests.waiting import PATIENCE, until
from wheelcache import KEEP
from wheelcache.django_backend import memoize

WHEEL = "wheelcache.django_backend.WheelCache"
TIERED = "wheelcache.django_backend.TieredCache"
LOCMEM = "django.core.cache.backends.locmem.LocMemCache"
DUMMY = "django.core.cache.backends.dummy.DummyCache"


class User(models.Model):
    """Has no table: nothing here asks the database."""

    username = models.CharField(max_length=10)

    class Meta:
        app_label = "memoized"

    def __str__(self):
        return self.username


class Permission(models.Model):
    class Meta:
        app_label = "memoized"

    def __str__(self):
        return "permission"


_locations = map("memoize {}".format, count())


def wheel(**params):
    return {"BACKEND": WHEEL, "LOCATION": next(_locations), "OPTIONS": {"JITTER": 0, "LOG_INTERVAL": None}, **params}


def locmem():
    return {"BACKEND": LOCMEM, "LOCATION": next(_locations)}


def tiered():
    return {"BACKEND": TIERED, "LOCATION": next(_locations), "OPTIONS": {"L2": "second", "LOG_INTERVAL": None}}


@pytest.fixture
def site():
    """Settings with these caches."""
    with override_settings(CACHES={"default": wheel(), "other": wheel(TIMEOUT=10, VERSION=2, KEY_PREFIX="p")}):
        yield


@pytest.fixture(params=["memory", "tiered", "locmem"])
def any_site(request):
    """Settings whose default cache is of each kind."""
    kinds = {"memory": wheel, "tiered": tiered, "locmem": locmem}
    with override_settings(CACHES={"default": kinds[request.param](), "second": locmem()}):
        yield request.param


class Counted:
    """A function that counts its calls."""

    __qualname__ = "Counted"

    def __init__(self, value=None):
        self.calls = []
        self.value = value

    def __call__(self, *args, **kwargs):
        self.calls.append((args, kwargs))
        return [len(self.calls)] if self.value is None else self.value


# Calls and keys.


def test_calls_are_counted_and_a_deletion_reports_whether_there_was_a_value(any_site):
    load = memoize(60)(lambda key, b=2: [key, b])
    for _ in range(2):
        assert [load("a"), load("a", 2), load("a", 3)] == [["a", 2], ["a", 2], ["a", 3]]
    assert (load.cache_stats().hits, load.cache_stats().misses, load.cache_stats().calls) == (4, 2, 2)
    assert load.cache_delete(key="a") is True
    assert load.cache_delete("a") is False


def test_a_function_receives_the_previous_value_and_may_keep_it(clock, site):
    received = []

    @memoize(60, grace=30)
    def load(key, *, previous=None):
        received.append((key, previous))
        return KEEP if previous else [key]

    assert load("a") == ["a"]
    clock.advance(60)
    assert load(key="a") == ["a"]
    assert until(lambda: received == [("a", None), ("a", ["a"])])
    with pytest.raises(TypeError, match="previous"):
        load("a", previous=1)


GRACES = {
    "in memory": (WHEEL, {"FILL_GRACE": {f"memoize.{__name__}": 30, "memoize.other": 0}}),
    "tiered": (TIERED, {"FILL_GRACE": {"memoize.": 30}, "L2": "second", "COHERENCE": "host"}),
}


@pytest.mark.parametrize(("backend", "given"), GRACES.values(), ids=GRACES)
def test_with_fill_grace_the_first_caller_computes_and_the_others_get_the_old_value(
    clock, in_thread, own_stamps, backend, given
):
    options = {"JITTER": 0, "LOG_INTERVAL": None, "FILL_WAIT": {"memoize.": 1000}, **given}
    caches_setting = {"default": wheel(BACKEND=backend, OPTIONS=options), "second": wheel()}
    began, may_end, received = threading.Event(), threading.Event(), []

    @memoize(60)
    def load(key, *, previous=None):
        received.append(previous)
        if previous:
            began.set()
            assert may_end.wait(PATIENCE)
        return [len(received)]

    with override_settings(CACHES=caches_setting):
        assert [load("a"), load("a")] == [[1], [1]]
        clock.advance(60)
        computing = in_thread(load, "a")
        assert began.wait(PATIENCE)
        assert [load("a"), load("a")] == [[1], [1]]
        may_end.set()
        assert computing.result(PATIENCE) == load("a") == [2]
    assert received == [None, [1]]


@pytest.mark.parametrize("timeout", [0, 60])
def test_a_cache_that_has_no_previous_value_passes_none(any_site, timeout):
    load = memoize(timeout)(lambda key, *, previous: [key, previous])
    assert load("a") == ["a", None]


def test_a_model_instance_is_keyed_by_its_primary_key(any_site):
    count = Counted()

    @memoize()
    def load(user, others=()):
        return count(user.pk)

    ada, grace = User(pk=7, username="ada"), User(pk=8, username="grace")
    assert [load(ada), load(User(pk=7, username="renamed")), load(SimpleLazyObject(lambda: ada))] == [[1]] * 3
    assert [load(grace), load(Permission(pk=7)), load(ada, (grace,)), load(ada, (User(pk=8),))] == [[2], [3], [4], [4]]
    with pytest.raises(TypeError, match=r"load\(\) has no primary key yet: <User: new>"):
        load(User(username="new"))


def test_an_evaluated_query_set_is_keyed_by_its_rows_and_any_other_is_an_error(any_site):
    count = Counted()

    @memoize()
    def load(users: models.QuerySet):
        return count()

    def evaluated(*pks):
        users = User.objects.all()
        users._result_cache = [User(pk=pk) for pk in pks]
        return users

    assert [load(evaluated(1, 2)), load(evaluated(1, 2)), load(evaluated(2, 1))] == [[1], [1], [2]]
    with pytest.raises(TypeError, match="is a QuerySet, and a query set is different for every call, unless"):
        load(User.objects.filter(pk=1))
    with pytest.raises(TypeError, match="a manager is different for every call"):
        load(User.objects)


def test_a_request_is_an_error_at_the_call(any_site):
    load = memoize()(lambda asked: asked.path)
    with pytest.raises(TypeError, match="is a WSGIRequest, and a request is different for every call; memoize a func"):
        load(RequestFactory().get("/"))


def test_parameters_that_are_requests_are_an_error_at_import():
    def by_name(request):
        """Has no annotation."""

    def by_class(page: HttpRequest):
        """Has one."""

    def by_text(page: "HttpRequest"):
        """Has one in quotes."""

    def by_union(page: HttpRequest | None = None):
        """May be without."""

    def method(self, *, request=None):
        """Has it at another place."""

    def by_manager(users: "BaseManager[User]"):
        """Has the class in brackets."""

    by_manager.__annotations__["users"] = BaseManager[User]
    for function in (by_name, by_class, by_text, by_union, method):
        with pytest.raises(TypeError, match=rf"{function.__name__}\(\) takes '\w+', and a request is different"):
            memoize()(function)
    with pytest.raises(TypeError, match="takes 'users', and a manager is different"):
        memoize()(by_manager)
    memoize(key=lambda page: page.path)(by_class)

    @memoize()
    def fetch(request: str, unknown: "Nowhere"):  # noqa: F821
        """Is no Django request, and an annotation of type checkers only is no error."""


def test_arguments_that_cannot_be_hashed_are_a_clear_error(site):
    load = memoize()(lambda rows: len(rows))
    with pytest.raises(TypeError, match=r"cannot be a key \(unhashable type: 'list'\); give memoize a key="):
        load([1])
    load = memoize(key=tuple)(lambda rows: len(rows))
    assert load([1, 2]) == 2


def test_elsewhere_an_object_without_a_text_of_its_own_is_an_error():
    class Row(NamedTuple):
        number: int

    with override_settings(CACHES={"default": locmem()}):
        load = memoize()(lambda value: repr(value))
        assert load(Row(1)) == load(Row(1)) == "Row(number=1)"
        assert load(frozenset("ab")) == load(frozenset("ba"))
        with pytest.raises(TypeError, match="has no text that is the same in every process: <object"):
            load(object())


def test_a_lazy_text_is_keyed_by_its_text(any_site):
    count = Counted()
    load = memoize()(lambda text: count())
    monday = gettext_lazy("Monday")
    with translation.override("en"):
        assert [load(monday), load("Monday")] == [[1], [1]]
    with translation.override("de"):
        assert load(monday) == [2]


def test_a_language_has_values_of_its_own_only_if_asked_for(any_site):
    shared, own = Counted(), Counted()
    load, by_language = memoize()(lambda key: shared()), memoize(by_language=True)(lambda key: own())
    for language, number in (("en", 1), ("de", 2), ("en", 1)):
        with translation.override(language):
            assert (load("a"), by_language("a")) == ([1], [number])


def test_wrong_arguments_of_the_decorator_are_errors_when_it_decorates():
    def generator():
        yield 1

    wrong = {
        r"memoize is called before it decorates: @memoize\(\)": lambda: memoize(generator),
        "timeout must be a number of seconds": lambda: memoize("60"),
        "cache must be a string, not": lambda: memoize(cache=caches),
        "by_language must be True or False": lambda: memoize(by_language="en"),
        "fail_safe needs grace": lambda: memoize(fail_safe=True),
        "load_timeout must be": lambda: memoize(load_timeout=-1),
        "with reusable results, not the generator": lambda: memoize()(generator),
        "below any other decorators": lambda: memoize()(property(generator)),
    }
    for message, decorate in wrong.items():
        with pytest.raises((TypeError, ValueError), match=message):
            decorate()


# Aliases, versions, timeouts.


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


def test_a_cache_that_caches_nothing_takes_every_option_and_others_refuse_those_of_a_wheel_cache():
    load = memoize(60, grace=60, negative_ttl=5)(lambda key: key)
    with override_settings(CACHES={"default": {"BACKEND": DUMMY}}):
        assert load("a") == "a"
    for kind in (locmem, tiered):
        with (
            override_settings(CACHES={"default": kind(), "second": locmem()}),
            pytest.raises(ImproperlyConfigured, match="need a WheelCache, and the cache 'default' is a"),
        ):
            load("a")


# Loading.


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


# Tags.


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


def test_tags_need_a_wheel_cache(any_site):
    load = memoize(60, tags=["a"])(lambda: 1)
    if any_site == "memory":
        assert load() == 1
    else:
        with pytest.raises(
            ImproperlyConfigured, match=r"and tags of .* need a WheelCache, and the cache 'default' is a"
        ):
            load()


def test_a_dummy_cache_accepts_tags():
    with override_settings(CACHES={"default": {"BACKEND": DUMMY}}):
        assert memoize(60, tags=["a"])(lambda: 1)() == 1
