"""The cache behind a ``TieredCache``: how it is made, and how it takes final keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import cachelib
import flask_caching
from flask import Flask
from werkzeug.utils import import_string

from wheelcache.core.contract import MISSING
from wheelcache.engine import options
from wheelcache.engine.codec import NOT_DECODED, read_or_delete
from wheelcache.near_cache.late_values import remove_own
from wheelcache.near_cache.socket_options import socket_options
from wheelcache.near_cache.store_calls import read_each
from wheelcache.near_cache.written_timeouts import NewTimeout
from wheelcache.runtime.steps import StepsTo, drive

L2_TAKES: Final = "the name or dotted path of a backend as in CACHE_TYPE, or a cachelib cache"

Prefix = str | Callable[[], str]


def prefix_of(l2: cachelib.BaseCache) -> Prefix:
    """Return the text that ``l2`` adds to the beginning of every key, or a function that returns it."""
    prefix: Prefix = getattr(l2, "key_prefix", None) or ""
    return prefix


def with_prefix(prefix: Prefix, key: str) -> str:
    if type(prefix) is not str:
        prefix = prefix() if callable(prefix) else prefix
    return key if type(key) is str and not prefix else f"{prefix}{key}"


def _unknown(result: object) -> None:
    """Return None: it is unknown whether a write has set the timeout."""


class CachelibStore:
    """A cache of cachelib: see ``near_copies.Store``. It adds its prefix again, which is taken from the final keys."""

    __slots__ = ("_l2", "_note_undecoded", "_prefix")

    can_replace = False
    takes_whole_seconds = True
    dropped_count = None

    def __init__(self, l2: cachelib.BaseCache, note_undecoded: Callable[[str, Exception], object]) -> None:
        self._l2 = l2
        self._note_undecoded = note_undecoded
        self._prefix = prefix_of(l2)

    def get(self, key: str, is_sure: bool = True) -> Any:
        try:
            return self._get(self._name(key), is_sure)
        except NOT_DECODED:
            return drive(self._read_again(key, is_sure))

    def _read_again(self, key: str, is_sure: bool = False) -> StepsTo[Any]:
        name = self._name(key)
        note = partial(self._note_undecoded, key)
        return read_or_delete(partial(self._get, name, is_sure), partial(self._l2.delete, name), note)

    def _get(self, name: str, is_sure: bool) -> Any:
        l2 = self._l2
        value = l2.get(name)
        if value is None:
            if not is_sure or not l2.has(name):
                return MISSING
            # The value is None, or the key was set in between.
            value = l2.get(name)
        return value

    def get_many(self, keys: list[str]) -> dict[str, Any]:
        try:
            values = zip(keys, self._values(keys), strict=True)
            return {key: value for key, value in values if value is not None}
        except NOT_DECODED:
            return drive(read_each(keys, self._read_again))

    def _values(self, keys: list[str]) -> list[Any]:
        """Return the values, None for missing ones. cachelib sends one command for all, which a Redis Cluster refuses:
        their keys are on several nodes."""
        l2: Any = self._l2
        get_by_slot = getattr(getattr(l2, "_read_client", None), "mget_nonatomic", None)
        if get_by_slot is None:
            return l2.get_many(*map(self._name, keys))  # type: ignore[no-any-return]
        return [l2.serializer.loads(value) for value in get_by_slot(keys)]

    def set(self, key: str, value: Any, ttl: Any) -> Any:
        return self._l2.set(self._name(key), value, _timeout(ttl))

    def is_stored(self, written: Any) -> bool:
        return bool(written)

    def add(self, key: str, value: Any, ttl: Any) -> Any:
        return self._l2.add(self._name(key), value, _timeout(ttl))

    def set_many(self, values: Mapping[str, Any], ttl: Any) -> list[str]:
        names = {self._name(key): key for key in values}
        stored = self._l2.set_many({name: values[key] for name, key in names.items()}, _timeout(ttl))
        left_out = names.keys() - {*stored}
        return [key for name, key in names.items() if name in left_out]

    def add_to(self, key: str, delta: Any, is_made: bool) -> Any:
        return self._l2.inc(self._name(key), delta)

    @property
    def timeout_of_counts(self) -> NewTimeout | None:
        # Redis keeps the timeout of a value. Others set the new one with the default timeout, or keep it.
        if hasattr(self._l2, "_write_client"):
            return None
        return NewTimeout(self._l2.default_timeout or None, _unknown)

    def delete(self, key: str) -> Any:
        return self._l2.delete(self._name(key))

    def delete_many(self, keys: list[str]) -> Any:
        return self._l2.delete_many(*map(self._name, keys))

    def clear(self) -> Any:
        return self._l2.clear()

    def remove(self, key: str, sealed: Any) -> None:
        l2, name = self._l2, self._name(key)
        remove_own(l2, key, sealed, partial(self.get, key), partial(l2.delete, name))

    def get_tokens(self, keys: list[str]) -> dict[str, Any]:
        return self.get_many(keys)

    def add_token(self, key: str, token: str) -> Any:
        return self.add(key, token, None)

    def set_tokens(self, tokens: dict[str, str], ttl: Any = None) -> None:
        for key, token in tokens.items():
            if self.set(key, token, ttl) is False:
                self.delete(key)

    def _name(self, key: str) -> str:
        prefix = self._prefix
        if not prefix:
            return key
        return key.removeprefix(prefix if type(prefix) is str else with_prefix(prefix, ""))


def _timeout(ttl: Any) -> Any:
    if type(ttl) is float and ttl.is_integer():
        # cachelib takes whole seconds.
        ttl = int(ttl)
    # In cachelib, 0 means no expiry. Below 0, Redis stores the value forever, and other caches do not store it.
    return 0 if ttl is None else ttl or -1


def checked_level(l2: Any, refused: type) -> cachelib.BaseCache:
    if not isinstance(l2, cachelib.BaseCache):
        raise TypeError(f"l2 must be {L2_TAKES}, not {options.shown(l2)}")
    if isinstance(l2, refused):
        raise TypeError(f"l2 must not be a TieredCache itself, as {options.shown(l2)} is")
    return l2


def second_level(app: Flask, config: dict[str, Any], l2: str, l2_options: Any) -> cachelib.BaseCache:
    """Return the cache of CACHE_TYPE ``l2`` and CACHE_OPTIONS ``l2_options``, with sockets that do not wait forever."""
    if not isinstance(l2_options, Mapping):
        raise TypeError(f"l2_options must be a dict, not {options.shown(l2_options)}")
    try:
        made_by = import_string(l2 if "." in l2 else f"flask_caching.backends.{l2}")
    except ImportError as error:
        raise ValueError(f"l2 must be {L2_TAKES}, not {options.shown(l2)}: {error}") from error
    settings = {
        **config,
        "CACHE_TYPE": l2,
        "CACHE_OPTIONS": {**socket_options(made_by), **l2_options},
        "CACHE_ARGS": [],
    }
    maker = flask_caching.Cache(with_jinja2_ext=False)
    maker.init_app(app, settings)
    return app.extensions["cache"].pop(maker)  # type: ignore[no-any-return]
