"""The duel of LRU and W-TinyLFU, which chooses the order of eviction of an adaptive cache.

Known policies gain much on some streams of requests and lose much on others: W-TinyLFU alone loses 36 points of hit
ratio on sessions, and 20 on bursts. Therefore two miniatures of the cache (Waldspurger et al., "Cache Modeling and
Optimization using Miniature Simulations", 2017) see a sample of the keys, by a secret hash, and have the same share of
its entries and weight. While LRU rules, the miniatures are compared; while W-TinyLFU rules, the results of the cache
with the miniature of LRU, since the miniatures alone were 2.5 points off when popularity drifted. Both the difference
in hits and the number of disagreements decay, by half within accesses to five times the entries.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import sqrt
from typing import Any, Final

from wheelcache.core.contract import MAX_WEIGHT
from wheelcache.core.departed import Departed
from wheelcache.core.regions import Order, Place

SAMPLE_BITS: Final = 12
WEIGHT_SHARES: Final = 2**24
"""The unit of weight in a miniature is this part of its bound."""
MOST_DEPARTED: Final = 2**24
DECAY: Final = 0.13862943611198906
"""ln(2) / 5"""
WORD: Final = 2**64 - 1
MIX: Final = 0x9E3779B97F4A7C15


class Sample:
    """The keys that miniatures see.

    Args:
        seed: the secret, of 64 bits.
        below: the share of the sampled keys, in parts of 2**32.
        most_weight: the largest weight of the cache.
    """

    def __init__(self, seed: int, below: int, most_weight: int) -> None:
        self._secret = seed * MIX & WORD
        self._factor = ((seed ^ seed >> 29) * 0xBF58476D1CE4E5B9 | 1) & WORD
        self._below = below
        self._most_weight = most_weight

    def spread(self, key: Hashable) -> int:
        """Return 64 bits that nobody can choose: the bits of the sample, those of the name, and those of the set."""
        number = ((hash(key) & WORD) ^ self._secret) * self._factor & WORD
        number = (number ^ number >> 32) * MIX & WORD
        return number ^ number >> 32

    def contains(self, spread: int) -> bool:
        """Return whether the key with this ``spread`` is sampled."""
        return spread >> 32 < self._below

    def size(self, entries: int) -> int:
        """Return the number of entries of a miniature, which has the share of the sample."""
        return max(entries * self._below >> 32, 1)

    def share(self, weight: int) -> int:
        """Return a weight in the unit of the miniatures."""
        return int(min(weight / self._most_weight * WEIGHT_SHARES * 2**32 / self._below, WEIGHT_SHARES))


class Miniature:
    """A small cache of sampled keys, by their names, which are ints of 32 bits.

    Args:
        most: the largest number of keys.
        most_weight: the largest weight.
        is_lru: whether it begins as LRU or as W-TinyLFU.
    """

    def __init__(self, most: int, most_weight: int = WEIGHT_SHARES, *, is_lru: bool) -> None:
        self._most = most
        self._most_weight = most_weight
        self._departed = Departed(most)
        self._order = Order(most, most_weight)
        self.use_lru(is_lru=is_lru)
        self.clear()

    def __len__(self) -> int:
        return len(self._order.places)

    def use_lru(self, *, is_lru: bool) -> None:
        """Switch between LRU and W-TinyLFU."""
        self._order.use_lru(is_lru=is_lru)

    def clear(self) -> None:
        self._order.clear()
        self._weight = 0

    def request(
        self, name: int, now: float, fresh_until: float, weight: int, *, is_uncontested: bool, is_write: bool
    ) -> bool:
        """Return whether the miniature has a key, and store the key if it has not.

        Args:
            is_write: whether the key gets a new lifetime in any case.
        """
        order = self._order
        place = order.places.get(name)
        is_hit = place is not None and place.fresh_until > now
        if place is not None and not is_hit and not is_write:
            self._remove(place)
            place = None
        if place is not None:
            order.use(place)
        else:
            if len(self) >= self._most:
                self._remove(order.victim())
            uses = 0 if order.is_lru else self._departed.uses(_spread_of_name(name), order.epoch)
            place = order.insert(name, uses)
        if is_write or not is_hit:
            place.fresh_until = fresh_until
            place.is_uncontested = place.is_uncontested or is_uncontested
            self._weight += weight - place.weight
            order.set_weight(place, weight)
            while self._weight > self._most_weight and len(self) > 1:
                self._remove(order.victim(self._weight - self._most_weight))
        return is_hit

    def fit(self, most: int) -> None:
        """Evict at most two keys, until the miniature has no more than ``most``."""
        for _ in range(min(len(self) - max(most, 0), 2)):
            self._remove(self._order.victim())

    def forget(self, name: int) -> None:
        place = self._order.places.get(name)
        if place is not None:
            self._remove(place)

    def _remove(self, place: Any) -> None:
        order = self._order
        if not order.is_lru:
            self._departed.note(_spread_of_name(place.key), order.uses_of(place), order.epoch)
        self._weight -= place.weight
        order.remove(place)


def _spread_of_name(name: int) -> int:
    number = name * MIX & WORD
    return number ^ number >> 32


class Duel:
    """The order of the entries of a cache, and the choice between its two modes.

    Its methods are called for the events of a cache, in their order.

    Args:
        most: the largest number of entries.
        most_weight: the largest weight.
        seed: the secret, of 64 bits.
        clock: returns the time of the cache.

    Attributes:
        order: the order, by the keys of the cache.
    """

    def __init__(self, most: int, most_weight: float, seed: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._most = most
        heaviest = int(min(most_weight, MAX_WEIGHT))
        self.order = Order(most, heaviest)
        noted = min(most, MOST_DEPARTED)
        # clamp(128 / most, 1/16, 1/4)
        below = min(max((128 << SAMPLE_BITS) // most, 256), 1024) << 32 - SAMPLE_BITS
        self._sample = Sample(seed, below, heaviest)
        self._departed = Departed(noted)
        self._lru = Miniature(self._sample.size(noted), is_lru=True)
        self._tiny_lfu = Miniature(self._sample.size(noted), is_lru=False)
        self._held = 0
        self._lead = 0.0
        self._disagreements = 0.0

    def hit(self, key: Any, fresh_until: float) -> None:
        """Note that a look-up found a fresh and current entry."""
        place = self.order.places.get(key)
        if place is not None:
            spread = self._sample.spread(key)
            if self._sample.contains(spread):
                self._access(spread, place, self._clock(), fresh_until, place.weight, was_hit=True)
            self.order.use(place)

    def use(self, key: Any) -> None:
        """Note that an entry was used without a look-up."""
        place = self.order.places.get(key)
        if place is not None:
            self.order.use(place)

    def store(
        self,
        key: Any,
        now: float,
        fresh_until: float,
        weight: int,
        was_fresh: bool,
        is_uncontested: bool,
        standing: int | None,
    ) -> None:
        """Note that a value was stored.

        Args:
            was_fresh: whether there was a fresh value. If not, the caller has missed the key before.
            is_uncontested: see ``Place``.
            standing: the standing in a snapshot that is restored; None if the value is new.
        """
        order, spread = self.order, self._sample.spread(key)
        place = order.places.get(key)
        if place is not None:
            order.use(place)
        else:
            place = order.insert(key, self._departed.uses(spread, order.epoch))
            self._held += self._sample.contains(spread)
        place.is_uncontested = place.is_uncontested or is_uncontested
        if standing is not None:
            order.restore(place, standing)
        if self._sample.contains(spread):
            if was_fresh or standing is not None:
                self._request(spread, place, now, fresh_until, weight, is_write=True)
            else:
                self._access(spread, place, now, fresh_until, weight, was_hit=False)
        order.set_weight(place, weight)

    def remove(self, key: Any, is_delete: bool) -> None:
        """Note that an entry was removed; with ``is_delete``, neither for its age nor for want of room."""
        place = self.order.places.get(key)
        if place is not None:
            spread = self._sample.spread(key)
            self._departed.note(spread, self.order.uses_of(place), self.order.epoch)
            self.order.remove(place)
            self._held -= self._sample.contains(spread)
        if is_delete:
            self.delete(key)

    def delete(self, key: Any) -> None:
        """Note that a key was deleted, whether or not there was an entry."""
        spread = self._sample.spread(key)
        if self._sample.contains(spread):
            self._lru.forget(spread & 0xFFFFFFFF)
            self._tiny_lfu.forget(spread & 0xFFFFFFFF)

    def standing(self, key: Any) -> int:
        """Return the standing of an entry, for a snapshot."""
        place = self.order.places.get(key)
        return 0 if place is None else self.order.standing(place)

    def begin_again(self, weights: list[tuple[Any, int]]) -> None:
        """Forget the order, and insert keys with their weights."""
        self.order.clear()
        for key, weight in weights:
            self.order.set_weight(self.order.insert(key, 0), weight)
        self._held = sum(self._sample.contains(self._sample.spread(key)) for key, _ in weights)

    def clear(self) -> None:
        """Forget all entries. The arm in force stays, and departed keys keep their uses."""
        self.order.clear()
        self._held = 0
        self._lru.clear()
        self._tiny_lfu.clear()

    def _access(self, spread: int, place: Place, now: float, fresh_until: float, weight: int, *, was_hit: bool) -> None:
        """Compare the arms for a sampled access."""
        if len(self.order.places) >= self._most:
            # Otherwise, a loop of which few keys are in the sample may fit into the miniature, but not into the cache.
            self._lru.fit(self._held - (not was_hit))
        lru, tiny_lfu = self._request(spread, place, now, fresh_until, weight, is_write=False)
        self._judge(lru, tiny_lfu if self.order.is_lru else was_hit)

    def _request(
        self, spread: int, place: Place, now: float, fresh_until: float, weight: int, *, is_write: bool
    ) -> list[bool]:
        """Return whether LRU and W-TinyLFU have a key. They store it if they have not."""
        share = self._sample.share(weight)
        return [
            miniature.request(
                spread & 0xFFFFFFFF,
                now,
                fresh_until,
                share,
                is_uncontested=place.is_uncontested,
                is_write=is_write,
            )
            for miniature in (self._lru, self._tiny_lfu)
        ]

    def _judge(self, lru_hits: bool, other_hits: bool) -> None:
        """Compare the two arms for one access, and switch if one of them is clearly better."""
        kept = 1.0 - DECAY / len(self._lru)
        self._lead *= kept
        self._disagreements *= kept
        if lru_hits == other_hits:
            return
        self._lead += 1 if other_hits else -1
        self._disagreements += 1
        doubt = sqrt(self._disagreements)
        if (self._lead > 2 * doubt + 1) if self.order.is_lru else (-self._lead > doubt + 1):
            self.order.use_lru(is_lru=not self.order.is_lru)
            self._lead /= 2
            self._disagreements /= 2
