"""The layer that follows transactions: see ``engine.layer``.

It decides for each call whether it acts on the open transaction, or on the layer below. Most calls do not come here
outside of transactions, nor for keys that follow none: see ``PrefixAccess._layer``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from wheelcache.engine.layer import SharedLayer
from wheelcache.transactions.followed_cache import FollowedCache
from wheelcache.transactions.in_transaction import InTransaction
from wheelcache.transactions.overlay import HIDDEN


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
        inside: the layer of a call that acts on the open transaction.
        open_transactions, overlays, of_thread: see ``FollowedCache``. ``PrefixAccess`` reads them first.
    """

    __slots__ = ("_below", "has_store", "immediate", "inside", "of_thread", "open_transactions", "overlays")

    def __init__(self, below: SharedLayer, followed: FollowedCache, immediate: tuple[str, ...] = ()) -> None:
        self._below, self.inside = below, InTransaction(below, followed)
        self.immediate, self.open_transactions = immediate, followed.open_transactions
        self.has_store: bool = below.has_store
        self.overlays, self.of_thread = followed.overlays, followed.of_thread

    def _layer(self) -> Any:
        return self.inside if self.open_transactions() else self._below

    load, aload = map(_passed, ("load", "aload"))
    look_up, has, seconds_left = map(_passed, ("look_up", "has", "seconds_left"))
    set, add, replace, touch, add_to, delete = map(_passed, ("set", "add", "replace", "touch", "add_to", "delete"))
    get_many, set_many, delete_many, compute = map(_passed, ("get_many", "set_many", "delete_many", "compute"))
    delete_tags, delete_pattern, delete_group, clear = map(
        _passed, ("delete_tags", "delete_pattern", "delete_group", "clear")
    )

    def shares(self) -> bool:
        return not self.open_transactions()

    def find(self, key: Any, default: Any) -> Any:
        return (self.inside if self.open_transactions() else self._below).find(key, default)

    def remove_undecoded(self, key: Any, stored: Any, error: Exception) -> None:
        if not self.inside.remove_undecoded(key, stored, error):
            self._below.remove_undecoded(key, stored, error)

    def seen(self, keys: Iterable[Any]) -> Iterable[Any]:
        return keys if self.shares() else [key for key in keys if self.inside.shows(key)]

    def own_keys(self) -> Iterable[Any]:
        return () if self.shares() else self.inside.own_keys()

    def hides(self, key: Any) -> bool:
        return not self.shares() and self.inside.found(key) is HIDDEN
