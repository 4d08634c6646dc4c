"""Loads are conserved: each computation of a value counts as one load, however the value is cached."""

import asyncio
from contextlib import contextmanager, nullcontext, suppress
from inspect import isawaitable

import flask
import flask_caching
import pytest
from django.core.cache import caches
from django.db import transaction
from django.test import override_settings

from tests.backends.adapter import QUIET, names
from tests.engines import engine, noted
from tests.guests import needs
from wheelcache.django_backend import memoize
from wheelcache.engine.guests import module_of

pytestmark = pytest.mark.django_db(transaction=True)

WAITS = {"fill_wait": 5, "grace": 5}
MODES = {
    "plain": {},
    "fill wait": WAITS,
    "transactions": {"transactions": True},
    "tiered": {"l2": "behind"},
    "tiered, transactions": {"l2": "behind", "transactions": True},
}


def guests_of(mode):
    guests = {"tiered": "near_cache", "fill wait": "fill_waits", "transactions": "transactions"}
    return [guest for word, guest in guests.items() if word in mode]


class Undone(Exception):
    """Rolls a block back."""


class Site:
    """A cache of a framework. Its methods for coroutines never wait, unless the cache has such methods.

    Attributes:
        backend: the backend object.
        calls: the number of computations.
        over: the timeout of a value that is not kept.
    """

    over = -1

    def __init__(self):
        self.calls = 0

    def compute(self):
        self.calls += 1
        return "computed"

    def fail(self):
        self.calls += 1
        raise Undone

    def loads(self):
        """Return the number of loads, in which the total, the histogram and the groups of keys agree."""
        stats = engine(self.backend).stats()
        loads = stats.loads + stats.load_failures
        assert sum(stats.load_buckets) == loads
        assert sum(each.loads for each in stats.groups.values()) == loads
        return loads

    async def call(self, name, *args, **given):
        return getattr(self.backend, name)(*args, **given)

    def run(self, flow):
        with suppress(StopIteration):
            flow(self).send(None)


class DjangoSite(Site):
    @contextmanager
    def running(self, options):
        spelled = {name.upper(): value for name, value in {**QUIET, **options}.items()}
        kind = f"wheelcache.django_backend.{'Tiered' if 'l2' in options else 'Wheel'}Cache"
        default = {"BACKEND": kind, "LOCATION": next(names), "OPTIONS": spelled}
        behind = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": next(names)}
        with override_settings(CACHES={"default": default, "behind": behind}):
            self.backend = caches["default"]
            yield
            self.backend.close()

    @contextmanager
    def block(self, *, is_kept):
        with suppress(Undone), transaction.atomic():
            yield
            if not is_kept:
                raise Undone

    get_many = "get_many"
    load = "get_or_set"

    def memoized(self):
        return memoize(60)(lambda number: self.compute())


class AsyncDjangoSite(DjangoSite):
    """The same cache, by its methods for coroutines."""

    async def call(self, name, *args, **given):
        return await getattr(self.backend, f"a{name}")(*args, **given)

    def run(self, flow):
        asyncio.run(flow(self))

    def memoized(self):
        async def function(number):
            return self.compute()

        return memoize(60)(function)


class FlaskSite(Site):
    @contextmanager
    def running(self, options):
        app = flask.Flask("loads")
        tiered = "l2" in options
        config = {
            "CACHE_TYPE": f"wheelcache.flask_backend.{'Tiered' if tiered else 'Wheel'}Cache",
            "CACHE_OPTIONS": {**QUIET, "name": next(names), **options, **({"l2": "SimpleCache"} if tiered else {})},
        }
        self.cache = flask_caching.Cache(app, config=config)
        self.backend = noted(app.extensions["cache"][self.cache])
        with app.test_request_context():
            yield

    @contextmanager
    def block(self, *, is_kept):
        def token():
            """Stand for a transaction."""

        transaction_scope = module_of("transactions", "announced").transaction_scope
        transaction_scope.begin(token)
        yield
        if is_kept:
            transaction_scope.will_commit(token)
        (transaction_scope.commit if is_kept else transaction_scope.rollback)(token)

    get_many = "get_dict"
    load = "get_or_load"

    async def call(self, name, *args, **given):
        if name in ("get_dict", "delete_many"):
            (args,) = args
        found = await super().call(name, *args, **given)
        return {key: value for key, value in found.items() if value is not None} if name == "get_dict" else found

    def memoized(self):
        return self.cache.memoize(60)(lambda number: self.compute())


SITES = {"django": DjangoSite, "django async": AsyncDjangoSite, "flask": FlaskSite}


# The TieredCache of Flask follows no transactions.
KINDS = [
    pytest.param(site, mode, marks=needs(*guests_of(mode)))
    for site in SITES
    for mode in MODES
    if "django" in site or mode != "tiered, transactions"
]


# The ways to cache a computed value. Each computes at least one, and finds it again, or writes it again.


async def get_and_set(site):
    for key in ("a", "b", "a", "k" * 300):
        if await site.call("get", key) is None:
            await site.call("set", key, site.compute())
            await site.call("set", key, "written again")


async def get_many_and_set_many(site):
    for keys in (["a", "b"], ["b", "c"]):
        found = await site.call(site.get_many, keys)
        await site.call("set_many", {key: site.compute() for key in keys if key not in found})
    await site.call(site.get_many, ["t", "u"])
    await site.call("set_many", {key: site.compute() for key in ("t", "u")}, tags=["a"])


async def load(site):
    for key in ("a", "b", "a"):
        await site.call(site.load, key, site.compute)
    await site.call(site.load, "tagged", site.compute, tags=["a"])
    await site.call(site.load, "over", site.compute, site.over)
    await site.call(site.load, "adaptive", site.compute, lambda value: 60)
    with suppress(Undone):
        await site.call(site.load, "fails", site.fail)


async def memoized(site):
    function = site.memoized()
    for number in (1, 2, 1):
        value = function(number)
        if isawaitable(value):
            await value


FLOWS = [get_and_set, get_many_and_set_many, load, memoized]


@pytest.mark.pairs
@pytest.mark.filterwarnings("ignore:Cache key will cause errors")
@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.__name__)
@pytest.mark.parametrize(("site", "mode"), KINDS)
def test_each_computation_is_one_load(site, mode, flow):
    site, options = SITES[site](), MODES[mode]
    with site.running(options):
        blocks = [nullcontext]
        if "transactions" in options and not isinstance(site, AsyncDjangoSite):
            blocks += [lambda: site.block(is_kept=True), lambda: site.block(is_kept=False)]
        for block in blocks:
            site.backend.clear()
            with block():
                site.run(flow)
            assert site.loads() == site.calls
        assert site.calls > 0


@needs("transactions")
@pytest.mark.parametrize("look_up", ["get", "get_many"])
@pytest.mark.parametrize("delete", [("delete", "key"), ("delete_tags", "tag")])
@pytest.mark.parametrize("site", [DjangoSite, FlaskSite])
def test_the_computation_of_a_key_that_the_transaction_has_deleted_is_one_load(site, delete, look_up):
    async def flow(site):
        await site.call(*delete)
        if look_up == "get":
            assert await site.call("get", "key") is None
        else:
            assert await site.call(site.get_many, ["key"]) == {}
        await site.call("set", "key", site.compute())

    site = site()
    with site.running(MODES["transactions"]):
        site.backend.set("key", 1, tags=["tag"])
        with site.block(is_kept=True):
            site.run(flow)
        assert site.loads() == site.calls == 1
