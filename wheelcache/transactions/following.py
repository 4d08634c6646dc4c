"""The layer that follows transactions: see ``engine.layer``.

It decides for each call whether it acts on the open transaction, or on the layer below. Most calls do not come here
outside of transactions, nor for keys that follow none: see ``PrefixAccess._layer``.
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


def _passed(name: str) -> Callable[..., Any]:
    def call(self: Following, *args: Any, **given: Any) -> Any:
        return getattr(self._layer(), name)(*args, **given)

    return call


class Following:
    """A layer over the one that all share.

    Args:
        immediate: the beginnings of the callers' keys that follow no transaction.

    Attributes:
        immediate: see above.
        open_transactions, overlays, of_thread: see ``FollowedCache``. ``PrefixAccess`` reads them first.
    """

    __slots__ = ("_below", "_inside", "has_store", "immediate", "of_thread", "open_transactions", "overlays")

    def __init__(self, below: SharedLayer, followed: FollowedCache, immediate: tuple[str, ...] = ()) -> None:
        self._below, self._inside = below, InTransaction(below, followed)
        self.immediate, self.open_transactions = immediate, followed.open_transactions
        self.has_store: bool = below.has_store
        self.overlays, self.of_thread = followed.overlays, followed.of_thread

    def _layer(self) -> Any:
        return self._inside if self.open_transactions() else self._below

    def apart(self, keys: list[Any]) -> Apart:
        """Return the layer of a call for several keys in a transaction, some of which, ``keys``, do not follow it."""
        return Apart(self._inside, self._below, keys)

    look_up, has, seconds_left = map(_passed, ("look_up", "has", "seconds_left"))
    set, add, replace, touch, add_to, delete = map(_passed, ("set", "add", "replace", "touch", "add_to", "delete"))
    get_many, set_many, delete_many, compute = map(_passed, ("get_many", "set_many", "delete_many", "compute"))
    delete_tags, delete_pattern, delete_group, clear = map(
        _passed, ("delete_tags", "delete_pattern", "delete_group", "clear")
    )

    def shares(self) -> bool:
        return not self.open_transactions()

    def find(self, key: Any, default: Any) -> Any:
        return (self._inside.find_value if self.open_transactions() else self._below.find)(key, default)

    def load(self, request: LoadRequest, found: Any = MISSING) -> Any:
        return self._below.load(request, found) if self.shares() else run(self._inside.load(request, found))

    async def aload(self, request: LoadRequest, found: Any = MISSING) -> Any:
        if self.shares():
            return await self._below.aload(request, found)
        return await run_async(self._inside.load(request, found))

    def remove_undecoded(self, key: Any, stored: Any, error: Exception) -> None:
        if not self._inside.remove_undecoded(key, stored, error):
            self._below.remove_undecoded(key, stored, error)

    def seen(self, keys: Iterable[Any]) -> Iterable[Any]:
        return keys if self.shares() else [key for key in keys if self._inside.shows(key)]

    def own_keys(self) -> Iterable[Any]:
        return () if self.shares() else self._inside.own_keys()

    def hides(self, key: Any) -> bool:
        return not self.shares() and self._inside.find(key) is HIDDEN


class Apart:
    """The two layers of a call for several keys, some of which follow no transaction.

    Args:
        keys: these, which are looked up and changed in the layer ``below``.
    """

    def __init__(self, inside: InTransaction, below: SharedLayer, keys: list[Any]) -> None:
        self._inside, self._below, self._keys = inside, below, keys

    def get_many(self, keys: list[Any]) -> StepsTo[dict[Any, Any]]:
        found = self._inside.get_many([key for key in keys if key not in self._keys])
        return found | (yield from in_steps(self._below.get_many(self._keys)))  # type: ignore[no-any-return]

    def set_many(self, values: Mapping[Any, Any], *args: Any, **given: Any) -> StepsTo[list[Any]]:
        others = {key: value for key, value in values.items() if key not in self._keys}
        refused = self._inside.set_many(others, *args, **given)
        apart = {key: values[key] for key in self._keys}
        return refused + (yield from in_steps(self._below.set_many(apart, *args, **given)))  # type: ignore[no-any-return]

    def delete_many(self, keys: list[Any]) -> StepsTo[int | None]:
        found = self._inside.delete_many([key for key in keys if key not in self._keys])
        count = yield from in_steps(self._below.delete_many(self._keys))
        return None if found is None or count is None else found + count
