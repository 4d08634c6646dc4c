"""The curve of the compiled core, said once more: miniatures of other sizes, which see the same requests.

Exact: with the same seed, a core has the same numbers.
"""

from tests.core.adaptive_model import ModelMiniature, spread
from wheelcache.core.contract import CURVE_KEYS, CURVE_SHARE, NO_SAMPLE, RemovalCause


class CurveModel:
    """Makes the calls of a core without tags and trust, and expects its ``sample``. The counts of the cache itself,
    and the moment at which W-TinyLFU comes into force, are those of the core."""

    def __init__(self, core, most, most_weight, seed):
        self.core, self.most, self.most_weight, self.seed = core, most, most_weight, seed
        self.below = min(CURVE_KEYS * 2**32 // most, 2**32 // CURVE_SHARE)
        size = most * self.below >> 32
        self.arms = [ModelMiniature((size << arm) // 2, True, (2**24 << arm) // 2) for arm in range(5)]
        self.arms.append(ModelMiniature(size, False))
        self.begin()

    def begin(self):
        self.windows, self.joined, self.is_filled = [], 1, False
        self.next_window()

    def next_window(self):
        self.began, self.halves = self.counts(), [[0] * 7, [0] * 7]

    def counts(self):
        counts = self.core.counts()
        left = counts.removals
        stored = counts.puts - left[RemovalCause.REPLACED]
        return counts.hits, counts.misses, stored, left[RemovalCause.EVICTED], left[RemovalCause.DELETED]

    def sample(self):
        return sum(self.windows[-3:], ()) if len(self.windows) >= 3 else NO_SAMPLE

    def find(self, key):
        value, record = self.core.find(key), self.core.peek(key)
        if value is None:
            self.core.count_miss(key)
        else:
            self.request(key, record.times.fresh_until, record.weight)
        return value

    def set(self, key, value, ttl, weight, is_uncontested):
        times = self.core.times(key)
        was_fresh = times is not None and times.fresh_until > self.core.now()
        store = self.core.add if is_uncontested else self.core.set
        store(key, value, ttl, weight=weight)
        self.request(key, self.core.times(key).fresh_until, weight, is_uncontested, was_fresh)

    def delete(self, key):
        self.core.delete(key)
        for arm in self.arms_of(key):
            arm.forget(spread(key, self.seed) % 2**32)

    def arms_of(self, key):
        return self.arms if spread(key, self.seed) >> 32 < self.below else []

    def request(self, key, fresh_until, weight, is_uncontested=False, is_write=False):
        bits, now = spread(key, self.seed), self.core.now()
        if not self.arms_of(key):
            return
        if len(self.windows) >= 3 and not any(self.core.sample()):
            for arm in self.arms:
                arm.order.is_lru = False
            self.begin()
        share = int(min(weight / self.most_weight * 2**24 * 2**32 / self.below, 2**24))
        hits = [arm.request(bits % 2**32, now, fresh_until, share, is_uncontested, is_write) for arm in self.arms]
        if not is_write:
            missed = [*(not hit for hit in hits), hits[1] != hits[5]]
            half = self.halves[bits >> 31 & 1]
            half[:] = map(sum, zip(half, missed, strict=True))
        since = tuple(now - before for now, before in zip(self.counts(), self.began, strict=True))
        if since[0] + since[2] >= self.joined * 5 * self.most:
            if self.is_filled:
                self.windows.append((*since, *self.halves[0], *self.halves[1]))
            self.is_filled = True
            self.next_window()
        if len(self.windows) == 6:
            pairs = zip(self.windows[::2], self.windows[1::2], strict=True)
            self.windows, self.joined = [tuple(map(sum, zip(*pair, strict=True))) for pair in pairs], 2 * self.joined
