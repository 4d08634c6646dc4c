"""Which calls share a value: models, query sets, requests, and arguments without an exact text."""

import functools
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from enum import Enum, IntFlag
from typing import NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.db import models
from django.db.models.manager import BaseManager
from django.http import HttpRequest
from django.test import RequestFactory, override_settings
from django.utils import translation
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy

from tests.django_backend.conftest import Counted, locmem, tiered
from tests.guests import needs
from wheelcache.django_backend import memoize


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


@dataclass(frozen=True)
class Filter:
    owner: object
    note: object = field(default="", compare=False)


@dataclass(frozen=True)
class OtherFilter:
    owner: object


class Subclass(Filter):
    """Is compared as its base class, but not equal to an instance of that."""


class Color(Enum):
    RED = 1
    GREEN = 2


class Access(IntFlag):
    READ = 1
    WRITE = 2


class Row(NamedTuple):
    number: int


def on_database(alias, pk=7):
    user = User(pk=pk, username="ada")
    user._state.db = alias
    return user


BERLIN = ZoneInfo("Europe/Berlin")

DISTINCT = {
    "models in dataclasses": [Filter(User(pk=7, username="ada")), Filter(User(pk=8, username="ada"))],
    "databases": [on_database("one"), on_database("two"), on_database("one", 8)],
    "databases in dataclasses": [Filter(on_database("one")), Filter((on_database("two"),)), Filter(Filter(User(pk=7)))],
    "databases in subclasses": [Subclass(on_database("one")), Subclass(on_database("two")), Filter(on_database("one"))],
    "dataclasses": [Filter(1), Subclass(1), OtherFilter(1), Filter((1,)), Filter("1"), Filter(None)],
    "enums": [Color.RED, Color.GREEN, Access.READ | Access.WRITE, Access.READ, 7],
    "functions": [len, max, locmem, tiered, Filter, OtherFilter],
    "texts": ["a", "b", "'a'", b"a", ("a",), (("a",),), frozenset("a"), "['a']"],
    "times": [datetime(2024, 1, 2, 3), datetime(2024, 1, 2, 3, tzinfo=BERLIN), datetime(2024, 1, 2, 3, tzinfo=UTC)],
    "numbers": [1, 1.5, Decimal("2.50"), range(3), 2j, UUID(int=1), timedelta(1), date(2024, 1, 2)],
}


@pytest.mark.pairs(full="any_site", of="values")
@pytest.mark.parametrize("values", DISTINCT.values(), ids=DISTINCT)
def test_different_arguments_have_different_values(any_site, values):
    count = Counted()
    load = memoize(60)(lambda value: count())
    numbers = [[number] for number in range(1, len(values) + 1)]
    for _ in range(2):
        assert [load(value) for value in values] == numbers


def test_arguments_that_are_equal_share_a_value(any_site):
    count = Counted()
    load = memoize(60)(lambda value: count())
    equal = [(Row(1), Row(1)), (frozenset("ab"), frozenset("ba")), (mark_safe("a"), mark_safe("a"))]
    equal += [(Filter(1, "a"), Filter(1, "b")), (on_database("default"), User(pk=7))]
    equal += [(each(on_database("two")), each(on_database("two"))) for each in (Filter, Subclass)]
    for number, (one, other) in enumerate(equal, 1):
        assert load(one) == load(other) == [number]


class Shown:
    def __repr__(self):
        return "shown"


class Text(str):
    pass


@dataclass(frozen=True)
class WithShown:
    owner: object


INEXACT = {
    "lambda": lambda: lambda: 1,
    "partial": lambda: functools.partial(int, 1),
    "method": lambda: [].append,
    "address": object,
    "repr": Shown,
    "subclass": lambda: Text("a"),
    "within": lambda: ("a", frozenset([WithShown(Shown())])),
    "zone": lambda: datetime(2024, 1, 2, tzinfo=type("Zone", (tzinfo,), {"utcoffset": lambda *_: timedelta()})()),
}


@pytest.mark.pairs(full="kind", of="kind")
@pytest.mark.parametrize("kind", [locmem, pytest.param(tiered, marks=needs("near_cache"))])
@pytest.mark.parametrize("make", INEXACT.values(), ids=INEXACT)
def test_elsewhere_an_argument_without_an_exact_text_is_an_error(kind, make):
    with override_settings(CACHES={"default": kind(), "second": locmem()}):
        load = memoize(60)(lambda value: 1)
        for call in (load, load.cache_delete):
            with pytest.raises(TypeError, match=r"has no exact text that is the same in every process: .*; memoize a"):
                call(make()), load("a"), call(make())
        keyed = memoize(60, key=lambda value: "the same")(lambda value: 1)
        assert keyed(make()) == 1


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
