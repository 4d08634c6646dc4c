"""The tags of the values in a store that has none.

The store keeps a *token* for each tag, a random string, under a key of its own. A value with tags is stored in an
*envelope*, with the tokens that its tags had before it was computed. It is current while the store has all of them.
If the tokens are read after the computation, they show whether the tag was dropped in the meantime: see ``tokens``.
``delete_tags`` writes other tokens, so one call drops any number of values from any store. A token that the store
evicts causes misses, but never brings a value back: the next value with its tag makes another one.

A reader reads the value first and then the tokens. If they match, the value was current when the tokens were read. The
cache of the copies knows the values by their tags as well, under the keys of the tokens: when a write of a token is
reported, or this process writes one, it drops the copies, and keeps no value that was read before.

Deleting the tokens instead would leave fewer keys in the store. But Redis reports each write of a token to all
processes, so after each drop, the next token would drop the copies and computations of all processes once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final

from wheelcache.core.access import is_printable
from wheelcache.core.contract import MISSING
from wheelcache.engine.codec import NOT_DECODED
from wheelcache.engine.loading.request import Tagged
from wheelcache.errors import TagsUnsupported
from wheelcache.near_cache.near_cache import NearCache
from wheelcache.near_cache.store_calls import answer, then
from wheelcache.near_cache.tokens import MARK, first_token, new_token
from wheelcache.runtime.reusable import check_reusable
from wheelcache.runtime.steps import StepsTo

TOKENS: Final = "wheelcache.tags"
VALUE: Final = "value"
"""The keys of an envelope, a dict that any serializer can store: the tokens by tag, and the value."""


def token_key(tag: str) -> str:
    """Return the caller's key of the token of ``tag``. It contains the tag, or a hash if some stores may refuse it."""
    if tag.isascii() and is_printable(tag, 100) and tag[0] != "#":
        return MARK + tag
    return f"{MARK}#{blake2b(tag.encode(errors='surrogatepass'), digest_size=16).hexdigest()}"


def is_envelope(value: Any) -> bool:
    """Return whether a value from the store is in an envelope. A caller's value that looks like one gets one, too."""
    return type(value) is dict and value.keys() == {TOKENS, VALUE} and type(value[TOKENS]) is dict


class StoreTags:
    """The tags of one store. In the methods, ``l2`` is the store, whose results are awaitable in a task.

    Args:
        level: the near cache in front of the store.
        key_of: returns the final key, under which writes are reported, for a caller's key.

    Attributes:
        key_of: see above.
        is_tracked: whether a connection reports the writes of tokens.
    """

    __slots__ = ("_engine", "_is_outage", "_misses", "_tokens", "is_tracked", "key_of")

    def __init__(self, level: NearCache, key_of: Callable[[str], str]) -> None:
        self._engine = level.cache.engine
        self._misses = level.cache.engine.misses()
        self._tokens = level.tokens
        self.is_tracked = level.is_tracked
        self._is_outage = level.is_outage
        self.key_of = key_of

    def begin(self, tags: tuple[str, ...], cache_keys: Iterable[Any] = (), since: int = 0) -> TaggedWrite:
        """Return a write of values with these tags, which answers the misses of ``cache_keys`` by this caller, unless
        the moment ``since`` at which their computation began is known."""
        missed = map(self._misses.since, cache_keys)
        return TaggedWrite(self, tags, since or min(filter(None, missed), default=0)) if tags else UNTAGGED

    def names(self, tags: Iterable[str]) -> tuple[str, ...]:
        """Return the names of tags in the cache of the copies: the final keys of their tokens."""
        return tuple([self.key_of(token_key(tag)) for tag in tags])

    def are_reported(self, names: tuple[str, ...], since: int) -> bool:
        """Return whether a drop of one of the tags after the moment ``since`` was reported to this process."""
        return self._engine.dropped_since(names, since)

    def are_older(self, tokens: Mapping[str, Any], since: int) -> bool:
        """Return whether ``tokens``, by their keys, were certainly written before the moment ``since``."""
        are_older = all(self._tokens.is_older(key, token, since) for key, token in tokens.items())
        self._tokens.note(tokens)
        return are_older

    def drop(self, l2: Any, tags: list[str]) -> Any:
        """Write other tokens. In a task, the result may be awaitable."""
        return l2.set_tokens({name: new_token() for name in self.names(tags)}) if tags else None

    def opened(self, l2: Any, found: Mapping[Any, Any], encode: Callable[[Any], Any]) -> Any:
        """Return the values from the store that are current, encoded, and Tagged if they have tags. In a task, the
        result may be awaitable."""
        tags = {tag for value in found.values() if is_envelope(value) for tag in value[TOKENS]}

        def checked(current: Mapping[str, Any]) -> dict[Any, Any]:
            self._tokens.note(current)
            opened = {key: self._open(value, current, encode) for key, value in found.items()}
            return {key: value for key, value in opened.items() if value is not MISSING}

        return then(checked, l2.get_tokens([*self.names(tags)])) if tags else checked({})

    def opened_one(self, l2: Any, value: Any, encode: Callable[[Any], Any]) -> Any:
        """Do the same for one value. Return MISSING if ``value`` is MISSING or not current."""
        if not is_envelope(value):
            return value if value is MISSING else encode(value)
        return then(lambda found: found.get(VALUE, MISSING), self.opened(l2, {VALUE: value}, encode))

    # Steps.

    def add_value(self, l2: Any, begun: TaggedWrite, key: Any, value: Any, ttl: Any) -> StepsTo[Any]:
        """Add a value, or replace one that is not current, and return whether it was stored."""
        yield from begun.begin(l2)
        sealed = begun.sealed(value)
        added = yield from answer(l2.add(key, sealed, ttl))
        return added or (yield from self.replace_dropped(l2, key, sealed, ttl))

    def replace_dropped(self, l2: Any, key: Any, sealed: Any, ttl: Any) -> StepsTo[Any]:
        """Replace a value that is not current. Return whether this was done.

        Replacing is not atomic, which a store would have to support: the value that another caller stores at the same
        moment is lost. Deleting the old value first would lose it as well, and readers would find nothing in between.
        """
        if (yield from self._is_over(l2, (yield from answer(l2.get(key))))):
            return (yield from answer(l2.set(key, sealed, ttl))) is not False
        return False

    def count(self, l2: Any, count: Callable[[], Any], key: Any) -> StepsTo[Any]:
        """Return the result of ``count()``, which changes the number under ``key`` in the store.

        Raises:
            TagsUnsupported: if the number has tags.
        """
        try:
            return (yield from answer(count()))
        except Exception as error:
            if self._is_outage(error):
                raise
            found = yield from answer(l2.get(key))
            is_over = yield from self._is_over(l2, found)
            if is_envelope(found) and not is_over:
                raise TagsUnsupported from error
            if is_over:
                yield from answer(l2.delete(key))
            # If the number could not be decoded, that look-up has deleted it.
            elif not (found is MISSING and isinstance(error, NOT_DECODED)):
                raise
        return (yield from answer(count()))

    def _is_over(self, l2: Any, found: Any) -> StepsTo[bool]:
        """Return whether a value has tags and is not current."""
        if not is_envelope(found):
            return False
        return (yield from answer(self.opened_one(l2, found, lambda value: value))) is MISSING

    def _open(self, value: Any, current: Mapping[str, Any], encode: Callable[[Any], Any]) -> Any:
        if not is_envelope(value):
            return encode(value)
        tokens = value[TOKENS]
        names = self.names(tokens)
        if any(not token or current.get(name) != token for name, token in zip(names, tokens.values(), strict=True)):
            return MISSING
        return Tagged(encode(value[VALUE]), names)


class TaggedWrite:
    """A write of values with tags, from the beginning of their computation.

    Args:
        store_tags: None if there are no tags.
        since: the moment at which the computation began; 0 if it begins with the write.

    Attributes:
        names: the names of the tags in the cache of the copies.
        is_current: whether no tag was dropped between the beginning of the computation and ``begin``.
    """

    __slots__ = ("_has_begun", "_since", "_store_tags", "_tags", "_tokens", "is_current", "names")

    def __init__(self, store_tags: StoreTags | None, tags: tuple[str, ...], since: int = 0) -> None:
        self._store_tags = store_tags
        self._tags = tags
        self._since = since
        self._tokens: dict[str, Any] = {}
        self._has_begun = False
        self.names = () if store_tags is None else store_tags.names(tags)
        self.is_current = True

    def begin(self, l2: Any) -> StepsTo[None]:
        """Read the tokens at the first call, and make the missing ones. A value without its tokens is not current."""
        store_tags = self._store_tags
        if store_tags is None or self._has_begun:
            return
        self._has_begun = True
        found = dict((yield from answer(l2.get_tokens([*self.names]))))
        is_reported = store_tags.are_reported(self.names, self._since)
        for key in self.names:
            if key not in found:
                token = first_token()
                if (yield from answer(l2.add_token(key, token))):
                    found[key] = token
                else:
                    # Another process was first.
                    found |= yield from answer(l2.get_tokens([key]))
        if not store_tags.is_tracked:
            # Where ``add`` is not atomic, it may have replaced the token of a drop. A server that reports writes, whose
            # report of a token that is made here looks like a drop, adds atomically.
            is_reported = store_tags.are_reported(self.names, self._since)
        self.is_current = not self._since or (not is_reported and store_tags.are_older(found, self._since))
        self._tokens = found

    def write(self, l2: Any, write: Callable[[Callable[[Any], Any]], Any]) -> Any:
        """Begin, and return the result of ``write(sealed)``."""
        return write(self.sealed) if self._store_tags is None else self._write(l2, write)

    def _write(self, l2: Any, write: Callable[[Callable[[Any], Any]], Any]) -> StepsTo[Any]:
        yield from self.begin(l2)
        return (yield from answer(write(self.sealed)))

    def sealed(self, value: Any) -> Any:
        """Return the form of ``value`` for the store.

        Raises:
            TypeError: if ``value`` can be read only once.
        """
        check_reusable(value)
        if self._store_tags is None and not is_envelope(value):
            return value
        tokens = self._tokens if self.is_current else {}
        by_tag = zip(self._tags, self.names, strict=True)
        return {TOKENS: {tag: tokens.get(name, "") for tag, name in by_tag}, VALUE: value}


UNTAGGED: Final = TaggedWrite(None, ())
