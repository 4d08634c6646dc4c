"""The order of eviction of an adaptive cache: W-TinyLFU (Einziger et al., 2017) with a window of a fifth, or exact LRU.

There are three regions, in order of eviction: probation, protected and window. New keys come into the window. A key
that leaves it contests with the oldest one of probation, and the one with fewer uses is evicted. Uses are counted up to
15, and halved in each epoch, which is five uses of each key. A switch to LRU makes the window as large as the cache:
keys move there one by one as they are used. A switch back makes it small, and each new key moves at most 8 old ones to
probation.

The same class orders the entries of the cache and those of its miniatures.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import Any, Final

from wheelcache.core.departed import aged

MOVES: Final = 8
MOST_USES: Final = 15
MOST_CONTESTED: Final = 15
"""More victims would have more uses than one candidate."""

IN_MAIN, IN_PROTECTED, UNCONTESTED = 16, 32, 64
USES_SHIFT: Final = 7
"""The bits of a standing, as a snapshot contains it."""


class Place:
    """The place of a key in the order.

    Attributes:
        region: the region that has the key.
        uses, epoch: the uses, and the epoch in which they were counted.
        is_uncontested: whether ``add`` or ``incr`` stored the key: it leaves the window without a contest.
        fresh_until: the time until which a key of a miniature is a hit.
    """

    __slots__ = ("epoch", "fresh_until", "is_uncontested", "key", "region", "uses", "weight")

    def __init__(self, key: Any, region: Region, uses: int, epoch: int) -> None:
        self.key = key
        self.region = region
        self.uses = uses
        self.epoch = epoch
        self.weight = 0
        self.is_uncontested = False
        self.fresh_until = 0.0


class Region(OrderedDict[Any, Place]):
    """Keys and their places, the least recently used first, and the bounds of their number and weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = self.most = self.most_weight = 0

    def is_full(self) -> bool:
        return len(self) >= self.most or self.weight >= self.most_weight

    def is_over(self) -> bool:
        return len(self) > self.most or self.weight > self.most_weight

    def oldest(self) -> Place | None:
        return next(iter(self.values()), None)


class Order:
    """See the module. It begins as LRU.

    Attributes:
        places: the places by key.
    """

    def __init__(self, most: int, most_weight: int) -> None:
        self._most = most
        self._most_weight = most_weight
        self._uses = 0
        self.epoch = 0
        self.is_lru = True
        self.clear()

    def clear(self) -> None:
        """Forget all keys."""
        self.places: dict[Any, Place] = {}
        self.probation, self.protected, self.window = Region(), Region(), Region()
        self.protected.most = (self._most - self._most // 5) * 4 // 5
        self.protected.most_weight = (self._most_weight - self._most_weight // 5) // 5 * 4
        self.use_lru(is_lru=self.is_lru)

    def use_lru(self, *, is_lru: bool) -> None:
        """Switch between LRU and W-TinyLFU."""
        self.is_lru = is_lru
        # One more than a fifth: a new key survives until a fifth of further keys are stored.
        self.window.most = self._most if is_lru else self._most // 5 + 1
        self.window.most_weight = self._most_weight if is_lru else self._most_weight // 5

    def uses_of(self, place: Place) -> int:
        return aged(place.uses, place.epoch, self.epoch)

    def use(self, place: Place) -> None:
        """Count a use of a key, and move it."""
        self._count_use(place)
        if place.region is self.window or self.is_lru:
            self._move(place, self.window)
        else:
            self._protect(place)

    def insert(self, key: Any, uses: int) -> Place:
        """Insert a key that had ``uses`` before it left, and that has no weight yet."""
        place = self.places[key] = self.window[key] = Place(key, self.window, uses, self.epoch)
        self._count_use(place)
        for _ in range(MOVES):
            oldest = self.window.oldest()
            if oldest is place or oldest is None or not self.window.is_over():
                break
            self._move(oldest, self.probation)
        return place

    def remove(self, place: Place) -> None:
        place.region.weight -= place.weight
        del place.region[place.key], self.places[place.key]

    def set_weight(self, place: Place, weight: int) -> None:
        place.region.weight += weight - place.weight
        place.weight = weight

    def victim(self, excess: int = 0) -> Place | None:
        """Return the place of the key that the next eviction removes; None if there is none. This changes nothing.

        Args:
            excess: the weight that evictions must free; 0 if one key must leave, whatever its weight.
        """
        main = [region for region in (self.probation, self.protected) if region]
        candidate = self.window.oldest()
        if not main or candidate is None:
            return main[0].oldest() if main else candidate
        oldest = main[0].oldest()
        if self.is_lru or candidate.is_uncontested or not self.window.is_full() or (excess and len(self.window) == 1):
            return oldest
        total = freed = 0
        victims = (place for region in main for place in region.values())
        for place in islice(victims, MOST_CONTESTED):
            total += self.uses_of(place)
            if self.uses_of(candidate) <= total:
                return candidate
            freed += place.weight
            if freed >= excess:
                return oldest
        return candidate if len(self.probation) + len(self.protected) > MOST_CONTESTED else oldest

    def keys(self) -> list[Any]:
        """Return the keys in order of eviction."""
        return [*self.probation, *self.protected, *self.window]

    def standing(self, place: Place) -> int:
        """Return the region and the uses of a key as bits, for a snapshot."""
        region = IN_MAIN * (place.region is not self.window) + IN_PROTECTED * (place.region is self.protected)
        return region + UNCONTESTED * place.is_uncontested + (self.uses_of(place) << USES_SHIFT)

    def restore(self, place: Place, standing: int) -> None:
        """Give a new key the region and the uses that it had in a snapshot."""
        if standing:
            place.is_uncontested = place.is_uncontested or bool(standing & UNCONTESTED)
            place.uses, place.epoch = standing >> USES_SHIFT & MOST_USES, self.epoch
        if standing & IN_PROTECTED:
            self._protect(place)
        elif standing & IN_MAIN:
            self._move(place, self.probation)

    def _count_use(self, place: Place) -> None:
        place.uses, place.epoch = min(self.uses_of(place) + 1, MOST_USES), self.epoch
        self._uses += 1
        if self._uses >= 5 * len(self.places):
            self._uses = 0
            self.epoch += 1

    def _move(self, place: Place, region: Region) -> None:
        """Move a key to the young end of a region."""
        del place.region[place.key]
        place.region.weight -= place.weight
        region[place.key] = place
        region.weight += place.weight
        place.region = region

    def _protect(self, place: Place) -> None:
        self._move(place, self.protected)
        while self.protected.is_over():
            self._move(next(iter(self.protected.values())), self.probation)
