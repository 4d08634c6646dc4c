"""The calls within a transaction: see ``transactions.following`` and ``transactions.followed_cache``.

Within a transaction, calls read and write its overlay. ``add``, ``add_to`` and ``touch`` act on the layer below
immediately, unless the transaction itself has set the key: then there is nobody else to be atomic with. If the
transaction has deleted the key, or dropped one of its tags, ``touch`` finds nothing, and the others delete it for all
before they make another entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from math import inf
from typing import Any, NamedTuple

from wheelcache.core.contract import MISSING
from wheelcache.engine import options
from wheelcache.engine.codec import NOT_DECODED
from wheelcache.engine.keys import callers_tags, group_of
from wheelcache.engine.layer import NO_GRACES, Select, SharedLayer
from wheelcache.engine.loading.memoize import Group
from wheelcache.engine.loading.request import PLAIN, LoadRequest
from wheelcache.engine.options import expires_now
from wheelcache.runtime.reusable import check_reusable
from wheelcache.runtime.steps import Steps, StepsTo, drive, in_steps, run, run_async
from wheelcache.transactions.followed_cache import FollowedCache
from wheelcache.transactions.overlay import HIDDEN, Fill, Overlay


class InTransaction:
    """What the calls of one thread see and do while a transaction is open. The operations return their results.

    Args:
        below: the layer that all share.
        followed: finds the transactions.

    Attributes:
        has_store: whether ``below`` has one.
    """

    __slots__ = ("_below", "_engine", "_followed", "_misses", "has_store")

    def __init__(self, below: SharedLayer, followed: FollowedCache) -> None:
        self._below = below
        self._followed = followed
        self._engine = below.cache.engine
        self._misses = below.cache.engine.misses()
        self.has_store: bool = below.has_store

    def apart(self, keys: list[Any]) -> Apart:
        """Return the layer of a call for several keys, some of which, ``keys``, do not follow the transaction."""
        return Apart(self, self._below, keys)

    def _overlay(self) -> Overlay:
        """Return the overlay of the open transaction, which the first call makes."""
        overlay = self._followed.open_transactions()[-1].overlay(self._followed)
        overlay.origin = self._below
        return overlay

    def _overlays(self) -> list[Overlay]:
        """Return the overlays of the open transactions, as far as there are any, the newest first."""
        followed = self._followed
        if not followed.overlays:
            return []
        found = [transaction.find_overlay(followed) for transaction in reversed(followed.open_transactions())]
        return [overlay for overlay in found if overlay is not None]

    # Reading.

    def found(self, key: Any) -> Any:
        """Return the Fill that the running transaction sees, HIDDEN, or None if the layer below must be asked."""
        return _find(self._overlays(), key)

    def find(self, key: Any, default: Any) -> Any:
        """Do the same as ``Cache.find``, with the values of the transaction."""
        found = self.found(key)
        if found is not None:
            return default if found is HIDDEN else found.value
        stored = self._below.find(key, default)
        return default if self._followed.overlays and stored is not default and self.hides(key) else stored

    def look_up(self, key: Any, *args: Any, **given: Any) -> StepsTo[Any]:
        found = self.found(key)
        if type(found) is Fill:
            return found.value
        stored = MISSING
        if found is None:
            stored = yield from in_steps(self._below.look_up(key, *args, **given))
            if stored is MISSING:
                self._overlay().missed(key)
            elif self.hides(key):
                # The set that may follow is no fill: other callers have another value.
                stored = MISSING
        return stored

    def hides(self, key: Any) -> bool:
        """Return whether a transaction has dropped a tag of the entry that was found below."""
        for overlay in self._overlays():
            if overlay.drops_tags:
                record = self._engine.peek(key)
                if record is None or overlay.has_dropped(callers_tags(record.tags)):
                    return True
        return False

    def _has_dropped_tag_of(self, key: Any) -> bool:
        """Do the same as ``hides``, but ask a store instead of its copies: it may have a value without tags of which
        there is no copy."""
        dropping = [overlay for overlay in self._overlays() if overlay.drops_tags]
        tags = drive(self._below.tags_of(key)) if dropping else ()
        return any(overlay.has_dropped(tags) for overlay in dropping)

    def shows(self, key: Any) -> bool:
        """Return whether the transaction sees the entry below."""
        return self.found(key) is None and not self.hides(key)

    def remove_undecoded(self, key: Any, stored: Any, error: Exception) -> bool:
        """If the transaction has set ``key`` to ``stored``, which cannot be decoded, delete it there. Return whether it
        has."""
        found = self.found(key) if self._followed.overlays else None
        if type(found) is not Fill or found.value is not stored:
            return False
        self._engine.remove_undecoded(key, MISSING, error)
        self._overlay().delete(key)
        return True

    def get_many(self, keys: list[Any]) -> dict[Any, Any]:
        overlay, seen = self._overlay(), {key: self.found(key) for key in keys}
        below = drive(self._below.get_many([key for key, found in seen.items() if found is None]))
        values = {}
        for key, found in seen.items():
            if type(found) is Fill:
                values[key] = found.value
            elif key in below and not self.hides(key):
                values[key] = below[key]
            else:
                if found is HIDDEN or key in below:
                    # The set that may follow is no fill: other callers have another value.
                    self._misses.note(key)
                overlay.missed(key)
        return values

    def has(self, key: Any) -> bool:
        found = self.found(key)
        if found is not None:
            return type(found) is Fill
        return drive(self._below.has(key)) and not self._has_dropped_tag_of(key)

    def seconds_left(self, key: Any) -> float | None:
        found = self.found(key)
        if found is None and not self._has_dropped_tag_of(key):
            return drive(self._below.seconds_left(key))  # type: ignore[no-any-return]
        return found.seconds_left(self._engine.now()) if type(found) is Fill else 0.0

    def own_keys(self) -> list[Any]:
        """Return the keys that the transaction has set."""
        return [*self._overlay().fills()]

    # Writing.

    def set(
        self, key: Any, value: Any, ttl: float | None, tags: tuple[str, ...] = (), since: int = 0, grace: float = 0.0
    ) -> bool:
        self._end_computation(key)
        names = self._below.names(tags) if tags else ()
        if since and names and self._engine.dropped_since(names, since):
            self.delete(key)
            return False
        if ttl is not None and ttl <= 0:
            return self.delete(key)
        check_reusable(value)
        return self._put(key, self._below.codec.encode(value), ttl, (grace, tags), names)

    def _put(
        self,
        key: Any,
        stored: Any,
        ttl: float | None,
        origin: tuple[float, tuple[str, ...]],
        names: tuple[str, ...],
        overlay: Overlay | None = None,
    ) -> bool:
        """Set an encoded value in ``overlay``, or in that of the open transaction. Return whether the cache would keep
        it."""
        if not self._below.fits(key, stored):
            return False
        engine = self._engine
        expires_at = inf if ttl is None else engine.now() + ttl
        fill = Fill(origin, stored, expires_at, names, engine.weigh(key, stored))
        (overlay or self._overlay()).set(key, fill)
        return True

    def _end_computation(self, key: Any) -> None:
        """Count the computation of a value that the transaction sets."""
        if self._misses.scopes:
            self._misses.count_computation(key)
            self._misses.pop_miss(key)

    def add(self, key: Any, value: Any, ttl: float | None, tags: tuple[str, ...] = ()) -> bool:
        found = self._own_value(key)
        if type(found) is Fill:
            return False
        names = self._below.names(tags) if tags else ()
        if any(overlay.has_dropped(names) for overlay in self._overlays()):
            # Below, the commit would delete it.
            is_missing = found is HIDDEN or not self.has(key)
            return is_missing and (expires_now(ttl) or self.set(key, value, ttl, tags))
        self._delete_hidden(key, found)
        is_added = drive(self._below.add(key, value, ttl, tags))
        if is_added:
            self._made(key)
        return is_added  # type: ignore[no-any-return]

    def replace(self, key: Any, value: Any, ttl: float | None, grace: float = 0.0) -> bool:
        self._end_computation(key)
        if not self.has(key):
            return False
        found = self.found(key)
        if type(found) is Fill:
            (grace, tags), names = found.origin, found.tags
        else:
            # A store keeps no tags of a value that is replaced.
            record = None if self.has_store else self._engine.peek(key)
            names = () if record is None else callers_tags(record.tags)
            tags = self._given(names)
        return self._replace(key, self._below.codec.encode(value), ttl, (grace, tags), names)

    def set_many(
        self,
        values: Mapping[Any, Any],
        ttl: float | None,
        tags: tuple[str, ...] = (),
        graces: Mapping[Any, float] = NO_GRACES,
        *,
        is_exact: bool = False,
    ) -> list[Any]:
        are_deleted = expires_now(ttl)
        return [
            key
            for key, value in values.items()
            if not (self.set(key, value, ttl, tags, 0, graces.get(key, 0.0)) or are_deleted)
        ]

    def touch(self, key: Any, ttl: float | None) -> bool:
        found = self._own_value(key)
        if found is None:
            return drive(self._below.touch(key, ttl))  # type: ignore[no-any-return]
        return type(found) is Fill and self._replace(key, found.value, ttl, found.origin, found.tags)

    def add_to(
        self, key: Any, delta: Any, start: Any = MISSING, ttl: float | None = None, *, or_none: bool = False
    ) -> Any:
        found = self._own_value(key)
        if type(found) is not Fill:
            if found is HIDDEN and start is MISSING:
                return MISSING
            self._delete_hidden(key, found)
            total = drive(self._below.add_to(key, delta, start, ttl, or_none=or_none))
            if start is not MISSING and total is not None:
                self._made(key)
            return total
        codec = self._below.codec
        try:
            value = codec.decode(found.value)
        except NOT_DECODED as error:
            self.remove_undecoded(key, found.value, error)
            return self.add_to(key, delta, start, ttl, or_none=or_none)
        total = (start if value is None and or_none else value) + delta
        self._replace(key, codec.encode(total), found.seconds_left(self._engine.now()), found.origin, found.tags)
        return total

    def _replace(
        self, key: Any, stored: Any, ttl: float | None, origin: tuple[float, tuple[str, ...]], names: tuple[str, ...]
    ) -> bool:
        return self.delete(key) if expires_now(ttl) else self._put(key, stored, ttl, origin, names)

    def delete(self, key: Any) -> bool:
        is_there = self.has(key)
        self._overlay().delete(key)
        return is_there

    def delete_many(self, keys: list[Any]) -> int | None:
        """Return the number of keys that existed; with a store, whose every look-up takes its time, None."""
        keys = list(dict.fromkeys(keys))
        count = None if self.has_store else sum(map(self.has, keys))
        for key in keys:
            self._overlay().delete(key)
        return count

    def delete_tags(self, tags: Iterable[str]) -> None:
        checked = [options.tag("tags", tag) for tag in tags]
        origins = [(self._below, tag) for tag in checked]
        self._overlay().drop_tags(dict(zip(self._below.names(checked), origins, strict=True)))

    def delete_pattern(self, select: Select, pattern: str, itersize: int | None = None) -> int:
        known = chain.from_iterable(self._engine.key_batches())
        matching = [key for key in select(list(known)) if self.shows(key)]
        return self._overlay().delete_pattern(select, (self._below, pattern, itersize)) + len(matching)

    def delete_group(self, group: Group) -> int:
        select = lambda keys: [key for key in keys if group_of(key) == group.name]  # noqa: E731
        return self._overlay().delete_pattern(select, (_Values(group),))

    def clear(self) -> bool:
        self._overlay().clear()
        return True

    # Computing.

    def load(self, request: LoadRequest, found: Any = MISSING) -> Any:
        return run(self._load(request, found))

    async def aload(self, request: LoadRequest, found: Any = MISSING) -> Any:
        return await run_async(self._load(request, found))

    def _load(self, request: LoadRequest, found: Any = MISSING, tags: tuple[str, ...] | None = None) -> Steps:
        """Return the steps to the value of a request, which the caller computes for itself. The transaction keeps it,
        unless the loader has ended it.

        Args:
            tags: the tags of the value as the caller spells them; None to find them from their names, as is possible
                without a store.
        """
        if found is not MISSING:
            return found, None
        request.stay_alone()
        key, overlay = request.caller_key, self._overlay()
        overlay.missed(key)
        stored, error = yield from self._engine.loads().compute(request)
        if error is not None:
            return None, error
        ttl, grace = request.ttl, request.grace
        if not expires_now(ttl):
            names = callers_tags(request.names)
            self._put(key, stored, ttl, (grace, self._given(names) if tags is None else tags), names, overlay)
        return request.decoded(stored), None

    def compute(
        self,
        key: Any,
        loader: Callable[..., Any],
        ttl: Any,
        tags: tuple[str, ...],
        *,
        is_computed: bool = True,
        is_missing: bool = False,
    ) -> Steps:
        """Do the same as ``NearCopies.compute``."""
        codec = self._below.codec
        stored = MISSING if is_missing else (yield from self.look_up(key))
        if stored is not MISSING:
            try:
                return codec.decode(stored), None
            except NOT_DECODED as error:
                if not self.remove_undecoded(key, stored, error):
                    self._below.remove_undecoded(key, stored, error)
        request = self._engine.loads().request(key, loader, ttl, PLAIN, self._below.names(tags), codec)
        # The look-up was counted.
        request.is_counted, request.is_computed = True, is_computed
        return (yield from self._load(request, tags=tags))

    def _given(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return tags as the caller spells them."""
        return tuple([name.removeprefix(self._below.tag_prefix) for name in names])

    # Calls that act on the layer below.

    def _own_value(self, key: Any) -> Any:
        """Return the value that an immediate call on ``key`` acts on, if the transaction has set it; HIDDEN if the
        transaction sees no entry, and None if the call acts on the entry below."""
        overlays = self._overlays()
        found = _find(overlays, key)
        if type(found) is Fill:
            return found
        for overlay in overlays:
            # A later set does not answer an earlier miss: it replaces the entry of this call.
            overlay.forget_miss(key)
        return HIDDEN if found is None and self._has_dropped_tag_of(key) else found

    def _delete_hidden(self, key: Any, found: Any) -> None:
        """Delete the entry below that the transaction does not see, before a call makes another one."""
        if found is HIDDEN:
            drive(self._below.delete_many([key]))

    def _made(self, key: Any) -> None:
        """Show the entry below that an immediate call has made, also if the transaction had deleted its key. Until
        then, the commit deletes it: others may have loaded the old value again."""
        if self.found(key) is HIDDEN:
            for overlay in self._overlays():
                overlay.reveal(key)


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


class _Values(NamedTuple):
    """Deletes the values of a memoized function at the commit."""

    group: Group

    def delete_pattern(self, select: Select) -> None:
        self.group.delete()


def _find(overlays: list[Overlay], key: Any) -> Any:
    for place, overlay in enumerate(overlays):
        found = overlay.find(key)
        if found is not None:
            is_dropped = type(found) is Fill and any(newer.has_dropped(found.tags) for newer in overlays[:place])
            return HIDDEN if is_dropped else found
    return None
