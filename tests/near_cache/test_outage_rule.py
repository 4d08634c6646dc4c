"""An exception means that the store is down if its class belongs to the client of the store."""

import pickle
import socket
import sqlite3
import threading
import types

import cachelib
import django_redis.exceptions
import pymemcache.exceptions
import pytest
import redis
from django.core.cache.backends.db import DatabaseCache
from django.core.cache.backends.filebased import FileBasedCache
from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.memcached import PyLibMCCache, PyMemcacheCache
from django.core.cache.backends.redis import RedisCache
from django.db import DataError, InterfaceError, OperationalError
from django.db.transaction import TransactionManagementError
from django_redis.cache import RedisCache as DjangoRedisCache
from flask_caching.backends.rediscache import RedisCache as FlaskRedisCache

from wheelcache.django_backend import WheelCache
from wheelcache.errors import StoreUnavailable
from wheelcache.near_cache.outage_rule import OutageRule


class TimeLimit(Exception):
    """Celery's SoftTimeLimitExceeded is such a class."""


class OwnRedisCache(RedisCache):
    """A site's own class."""


class OwnRedisError(redis.RedisError):
    """An error class of code that extends redis-py."""


def instance(cls):
    """An object that has not connected to anything."""
    return super(cls, cls).__new__(cls)


def of_library(module, name="Error"):
    """An exception of a package that is not installed here."""
    return type(name, (Exception,), {"__module__": module})()


SYSTEM = [OSError("disk"), TimeoutError(), socket.gaierror(), ConnectionResetError(), StoreUnavailable()]
REDIS = [redis.TimeoutError(), redis.ConnectionError(), redis.exceptions.RedisClusterException(), OwnRedisError()]
MEMCACHE = [pymemcache.exceptions.MemcacheServerError(), pymemcache.exceptions.MemcacheUnexpectedCloseError()]
INTERRUPTED = [django_redis.exceptions.ConnectionInterrupted(None)]
DATABASE = [OperationalError(), InterfaceError()]
PYLIBMC = [of_library("pylibmc"), of_library("_pylibmc", "ConnectionError")]
VALKEY = [of_library("valkey.exceptions", "ConnectionError")]
ALL = [*REDIS, *MEMCACHE, *INTERRUPTED, *DATABASE, *PYLIBMC, *VALKEY]

NEVER = [
    *(TimeLimit(), RuntimeError(), ArithmeticError(), AssertionError(), KeyboardInterrupt(), None),
    *(TypeError(), ValueError(), KeyError(), AttributeError(), EOFError(), ImportError(), pickle.PicklingError()),
    *(redis.ResponseError(), redis.DataError(), django_redis.exceptions.CompressorError(), DataError()),
    *(pymemcache.exceptions.MemcacheIllegalInputError(), TransactionManagementError(), sqlite3.OperationalError()),
]

CLIENTS = {
    RedisCache: REDIS,
    OwnRedisCache: REDIS,
    DjangoRedisCache: [*REDIS, *INTERRUPTED],
    PyMemcacheCache: MEMCACHE,
    PyLibMCCache: PYLIBMC,
    DatabaseCache: DATABASE,
    FileBasedCache: [],
    LocMemCache: [],
    WheelCache: [],
    cachelib.RedisCache: REDIS,
    FlaskRedisCache: REDIS,
    cachelib.ValkeyCache: VALKEY,
    cachelib.MemcachedCache: [*MEMCACHE, *PYLIBMC],
    cachelib.FileSystemCache: [],
    cachelib.SimpleCache: [],
}


@pytest.mark.parametrize("store", CLIENTS, ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_the_errors_of_the_stores_own_client_and_of_the_system_are_outages_and_no_others(store):
    rule = OutageRule(instance(store))
    outages = [error for error in [*SYSTEM, *ALL, *NEVER] if rule.is_outage(error)]
    assert outages == [*SYSTEM, *(error for error in ALL if error in CLIENTS[store])]


UnknownStore = type("UnknownStore", (), {"__module__": "site.caches"})


def test_the_client_of_an_unknown_store_is_found_in_its_attributes_when_a_call_fails():
    store = UnknownStore()
    rule = OutageRule(store)
    error = of_library("someclient.exceptions")
    assert not rule.is_outage(error)
    store.client = type("Client", (), {"__module__": "someclient.connection"})()
    assert rule.is_outage(error)
    assert not rule.is_outage(of_library("someclients.exceptions"))
    store.module = types.ModuleType("otherclient.api")
    assert rule.is_outage(of_library("otherclient.errors"))
    store.lock, store.options, store.connect = threading.Lock(), {}, print
    assert not any(map(rule.is_outage, NEVER))
    assert all(map(rule.is_outage, SYSTEM))


def test_an_unknown_store_may_define_errors_in_its_module_but_the_sites_others_are_no_outages():
    rule = OutageRule(UnknownStore())
    assert rule.is_outage(of_library("site.caches", "Unavailable"))
    assert not rule.is_outage(of_library("site.limits", "OutOfTime"))
