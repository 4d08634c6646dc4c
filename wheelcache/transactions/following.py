"""The layer that follows transactions: see ``engine.layer``.

It decides for each call whether it acts on the open transaction, or on the layer below: outside of transactions, and
for keys that follow none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from wheelcache.core.contract import HIDDEN, MISSING
from wheelcache.engine.layer import SharedLayer
from wheelcache.engine.loading.request import LoadRequest
from wheelcache.engine.loading.steps import StepsTo, in_steps, run, run_async
from wheelcache.transactions.followed_cache import FollowedCache
from wheelcache.transactions.in_transaction import InTransaction


def _by_key(name: str) -> Callable[..., Any]:
    def call(self: Following, key: Any, *args: Any, **given: Any) -> Any:
        return getattr(self._of(key), name)(key, *args, **given)

    return call


def _of_all(name: str) -> Callable[..., Any]:
    def call(self: Following, *args: Any, **given: Any) -> Any:
        return getattr(self._layer(), name)(*args, **given)

    return call


class Following:
    """A layer over the one that all share.

    Args:
        immediate: the beginnings of the callers' keys that follow no transaction.

    Attributes:
        overlays, of_thread: see ``FollowedCache``. ``PrefixAccess.get`` reads them first.
    """

    __slots__ = ("_beginnings", "_below", "_followed", "_immediate", "_inside", "has_store", "of_thread", "overlays")

    def __init__(self, below: SharedLayer, followed: FollowedCache, immediate: tuple[str, ...] = ()) -> None:
        self._below, self._followed, self._immediate = below, followed, immediate
        self._inside = InTransaction(below, followed)
        self._beginnings: tuple[str, ...] = ()
        self.has_store: bool = below.has_store
        self.overlays, self.of_thread = followed.overlays, followed.of_thread

    def use_keys(self, make_key: Callable[[str], str]) -> None:
        self._beginnings = tuple(map(make_key, self._immediate))

    def _layer(self) -> Any:
        return self._inside if self._followed.open_transactions() else self._below

    def _of(self, key: Any) -> Any:
        return self._inside if self._followed.open_transactions() and not self._is_immediate(key) else self._below

    def _is_immediate(self, key: Any) -> bool:
        name = key[0] if type(key) is tuple and len(key) == 1 else key
        return type(name) is str and name.startswith(self._beginnings)

    look_up, has, seconds_left = map(_by_key, ("look_up", "has", "seconds_left"))
    set, add, replace, touch, add_to, delete = map(_by_key, ("set", "add", "replace", "touch", "add_to", "delete"))
    compute = _by_key("compute")
    delete_tags, delete_pattern, delete_group, clear = map(
        _of_all, ("delete_tags", "delete_pattern", "delete_group", "clear")
    )

    def shares(self) -> bool:
        return self._layer() is self._below

    def find(self, key: Any, default: Any) -> Any:
        layer = self._of(key)
        return layer.find(key, default) if layer is self._below else layer.find_value(key, default)

    def load(self, request: LoadRequest, found: Any = MISSING) -> Any:
        layer = self._of(request.caller_key)
        return layer.load(request, found) if layer is self._below else run(layer.load(request, found))

    async def aload(self, request: LoadRequest, found: Any = MISSING) -> Any:
        layer = self._of(request.caller_key)
        if layer is self._below:
            return await layer.aload(request, found)
        return await run_async(layer.load(request, found))

    def remove_undecoded(self, key: Any, stored: Any, error: Exception) -> None:
        if not self._inside.remove_undecoded(key, stored, error):
            self._below.remove_undecoded(key, stored, error)

    def seen(self, keys: Iterable[Any]) -> Iterable[Any]:
        return keys if self.shares() else [key for key in keys if self._is_immediate(key) or self._inside.shows(key)]

    def own_keys(self) -> Iterable[Any]:
        return () if self.shares() else self._inside.own_keys()

    def hides(self, key: Any) -> bool:
        return not self.shares() and self._inside.find(key) is HIDDEN

    # Calls for several keys, some of which may follow no transaction.

    def _apart(self, keys: Iterable[Any]) -> list[Any]:
        return [*filter(self._is_immediate, keys)] if self._beginnings and not self.shares() else []

    def get_many(self, keys: list[Any]) -> StepsTo[dict[Any, Any]]:
        apart = self._apart(keys)
        found = yield from in_steps(self._layer().get_many([key for key in keys if key not in apart]))
        return found | (yield from in_steps(self._below.get_many(apart))) if apart else found  # type: ignore[no-any-return]

    def set_many(self, values: Mapping[Any, Any], *args: Any, **given: Any) -> StepsTo[list[Any]]:
        apart = self._apart(values)
        others = {key: value for key, value in values.items() if key not in apart}
        refused = yield from in_steps(self._layer().set_many(others, *args, **given))
        if apart:
            refused += yield from in_steps(self._below.set_many({key: values[key] for key in apart}, *args, **given))
        return refused  # type: ignore[no-any-return]

    def delete_many(self, keys: list[Any]) -> StepsTo[Any]:
        apart = self._apart(keys)
        found = yield from in_steps(self._layer().delete_many([key for key in keys if key not in apart]))
        if not apart or found is None:
            return found
        count = yield from in_steps(self._below.delete_many(apart))
        return None if count is None else found + count
