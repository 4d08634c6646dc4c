"""The adaptive policy, said once more: lists of keys, and plain loops over them.

Exact: with the same seed, a core evicts the same keys. A place in the table of departed keys is shared by keys with
equal bits, so the model computes the same bits; all else is its own.
"""

from math import inf, log, sqrt
from types import SimpleNamespace

BITS = 2**64


def spread(key, seed):
    number = (hash(key) % BITS ^ seed * 0x9E3779B97F4A7C15 % BITS) * (
        ((seed ^ seed >> 29) * 0xBF58476D1CE4E5B9 % BITS) | 1
    )
    return mixed(number % BITS ^ number % BITS >> 32)


def mixed(number):
    number = number * 0x9E3779B97F4A7C15 % BITS
    return number ^ number >> 32


class ModelDeparted:
    """For each set, the keys that left, the latest first: their names, uses and epochs."""

    def __init__(self, keys):
        self.sets = [[] for _ in range(-(-keys // 8))]

    def at(self, bits):
        return self.sets[bits % 2**32 * len(self.sets) >> 32], bits >> 32 & 0xFFFFF

    def uses(self, bits, now):
        ways, name = self.at(bits)
        return next((uses >> (now - epoch) % 16 for each, uses, epoch in ways if each == name), 0)

    def note(self, bits, uses, now):
        ways, name = self.at(bits)
        ways[:] = [(name, uses, now), *(way for way in ways if way[0] != name)]
        if len(ways) > 8:
            fewest = min(uses >> (now - epoch) % 16 for _, uses, epoch in ways[1:])
            del ways[max(place for place in range(1, 9) if ways[place][1] >> (now - ways[place][2]) % 16 == fewest)]


class ModelOrder:
    """Three lists of keys in order of eviction: ``probation``, ``protected`` and ``window``."""

    def __init__(self, most, most_weight):
        self.most, self.most_weight = most, most_weight
        self.probation, self.protected, self.window = [], [], []
        self.places = {}
        self.is_lru = True
        self.counted = self.epoch = 0

    @property
    def keys(self):
        return self.probation + self.protected + self.window

    def weigh(self, keys):
        return sum(self.places[key].weight for key in keys)

    def bounds_of_window(self):
        if self.is_lru:
            return self.most, self.most_weight
        return self.most // 5 + 1, self.most_weight // 5

    def uses(self, key):
        place = self.places[key]
        return place.uses >> (self.epoch - place.epoch) % 16

    def count(self, key):
        self.places[key].uses, self.places[key].epoch = min(15, self.uses(key) + 1), self.epoch
        self.counted += 1
        if self.counted >= 5 * len(self.places):
            self.counted, self.epoch = 0, self.epoch + 1

    def take_out(self, key):
        next(region for region in (self.probation, self.protected, self.window) if key in region).remove(key)

    def use(self, key):
        self.count(key)
        is_in_window = key in self.window
        self.take_out(key)
        if is_in_window or self.is_lru:
            self.window.append(key)
            return
        self.protected.append(key)
        main, main_weight = self.most - self.most // 5, self.most_weight - self.most_weight // 5
        while len(self.protected) > main * 4 // 5 or self.weigh(self.protected) > main_weight // 5 * 4:
            self.probation.append(self.protected.pop(0))

    def insert(self, key, uses):
        self.places[key] = SimpleNamespace(uses=uses, epoch=self.epoch, weight=0, is_uncontested=False, fresh_until=inf)
        self.window.append(key)
        self.count(key)
        most, most_weight = self.bounds_of_window()
        for _ in range(8):
            if self.window[0] != key and (len(self.window) > most or self.weigh(self.window) > most_weight):
                self.probation.append(self.window.pop(0))

    def remove(self, key):
        self.take_out(key)
        del self.places[key]

    def clear(self):
        self.probation, self.protected, self.window, self.places = [], [], [], {}

    def victim(self, excess=0):
        main = self.probation + self.protected
        most, most_weight = self.bounds_of_window()
        is_full = len(self.window) >= most or self.weigh(self.window) >= most_weight
        if not main or not self.window or self.is_lru or not is_full:
            return self.keys[0]
        candidate = self.window[0]
        if self.places[candidate].is_uncontested or (excess and len(self.window) == 1):
            return main[0]
        # The fewest of the oldest whose weights make room.
        victims = next((main[:n] for n in range(1, len(main) + 1) if self.weigh(main[:n]) >= excess), main)
        admits = all(self.uses(candidate) > sum(map(self.uses, victims[:n])) for n in range(1, len(victims) + 1))
        return main[0] if admits and len(victims) <= 15 else candidate

    def standing(self, key):
        region = 16 * (key not in self.window) + 32 * (key in self.protected)
        return region + 64 * self.places[key].is_uncontested + 128 * self.uses(key)


class ModelMiniature:
    def __init__(self, most, is_lru, most_weight=2**24):
        self.departed = ModelDeparted(most)
        self.order = ModelOrder(most, most_weight)
        self.order.is_lru = is_lru

    def remove(self, name):
        if not self.order.is_lru:
            self.departed.note(mixed(name), self.order.uses(name), self.order.epoch)
        self.order.remove(name)

    def request(self, name, now, fresh_until, weight, is_uncontested, is_write):
        order = self.order
        is_hit = name in order.places and order.places[name].fresh_until > now
        if name in order.places and not is_hit and not is_write:
            self.remove(name)
        if name in order.places:
            order.use(name)
        else:
            if len(order.places) >= order.most:
                self.remove(order.victim())
            order.insert(name, 0 if order.is_lru else self.departed.uses(mixed(name), order.epoch))
        if is_write or not is_hit:
            place = order.places[name]
            place.fresh_until, place.weight = fresh_until, weight
            place.is_uncontested |= is_uncontested
            while len(order.places) > 1 and order.weigh(order.keys) > order.most_weight:
                self.remove(order.victim(order.weigh(order.keys) - order.most_weight))
        return is_hit

    def fit(self, most):
        for _ in range(2):
            if len(self.order.places) > max(most, 0):
                self.remove(self.order.victim())

    def forget(self, name):
        if name in self.order.places:
            self.remove(name)


class AdaptiveModel:
    """The events of a core with ``policy="adaptive"``."""

    def __init__(self, most, most_weight, seed):
        self.seed = seed
        self.share = min(max(128 * 4096 // most, 4096 // 16), 4096 // 4)
        self.most_weight = 2**62 if most_weight == inf else most_weight
        self.order = ModelOrder(most, self.most_weight)
        self.departed = ModelDeparted(most)
        self.lru = ModelMiniature(max(1, most * self.share // 4096), is_lru=True)
        self.tiny_lfu = ModelMiniature(max(1, most * self.share // 4096), is_lru=False)
        self.lead = self.disagreements = 0.0

    def hit(self, key, now, fresh_until):
        self.compare(key, now, fresh_until, self.order.places[key].weight, was_hit=True)
        self.order.use(key)

    def stored(self, key, now, fresh_until, weight, was_fresh, is_uncontested):
        if key in self.order.places:
            self.order.use(key)
        else:
            self.order.insert(key, self.departed.uses(spread(key, self.seed), self.order.epoch))
        place = self.order.places[key]
        place.is_uncontested |= is_uncontested
        if was_fresh:
            self.request(key, now, fresh_until, weight, is_write=True)
        else:
            self.compare(key, now, fresh_until, weight, was_hit=False)
        place.weight = weight

    def removed(self, key, is_delete):
        self.departed.note(spread(key, self.seed), self.order.uses(key), self.order.epoch)
        self.order.remove(key)
        if is_delete:
            self.deleted(key)

    def deleted(self, key):
        for miniature in self.arms_of(key):
            miniature.forget(spread(key, self.seed) % 2**32)

    def clear(self):
        self.order.clear()
        self.lru.order.clear()
        self.tiny_lfu.order.clear()

    def arms_of(self, key):
        return [self.lru, self.tiny_lfu] if spread(key, self.seed) >> 52 < self.share else []

    def request(self, key, now, fresh_until, weight, is_write):
        share = int(min(2**24, weight / self.most_weight * 2**24 * 4096 / self.share))
        name, is_uncontested = spread(key, self.seed) % 2**32, self.order.places[key].is_uncontested
        return [arm.request(name, now, fresh_until, share, is_uncontested, is_write) for arm in self.arms_of(key)]

    def compare(self, key, now, fresh_until, weight, was_hit):
        if self.arms_of(key) and len(self.order.places) >= self.order.most:
            held = [other for other in self.order.places if self.arms_of(other)]
            self.lru.fit(len(held) - (not was_hit))
        hits = self.request(key, now, fresh_until, weight, is_write=False)
        if not hits:
            return
        kept = 1 - log(2) / 5 / len(self.lru.order.places)
        self.lead, self.disagreements = self.lead * kept, self.disagreements * kept
        other = hits[1] if self.order.is_lru else was_hit
        if hits[0] == other:
            return
        self.lead += 1 if other else -1
        self.disagreements += 1
        doubt = sqrt(self.disagreements)
        if self.lead > 2 * doubt + 1 if self.order.is_lru else self.lead < -doubt - 1:
            self.order.is_lru = not self.order.is_lru
            self.lead, self.disagreements = self.lead / 2, self.disagreements / 2
