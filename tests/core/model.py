"""The contract of a core, said once more: a list of entries in order of use, and plain loops over it."""

from dataclasses import dataclass
from math import floor, inf
from types import SimpleNamespace

from wheelcache.core.contract import (
    CHANGED,
    KEEP_TTL,
    MISSING,
    OUTDATED,
    PRESENT,
    STORED,
    TOO_HEAVY,
    MissCause,
    RemovalCause,
)

EXPIRED, EVICTED, REPLACED, DELETED, CLEARED = RemovalCause

ANY, ABSENT, SAME = "set", "add", "replace"
"""The modes of ``Model.set``."""


@dataclass(eq=False)
class ModelTag:
    """A tag from one drop of it to the next."""

    is_dropped: bool = False


class Model:
    """A core without jitter, whose ticks are of one second from time 0.

    Attributes:
        left: every removal that was reported, as (key, value, cause), in order.
        remembers: whether the causes for which keys left are known, as in the compiled core.
    """

    def __init__(self, max_entries=None, max_weight=None, trust=None, remembers=True):
        self.max_entries = max_entries or inf
        self.max_weight = inf if max_weight is None else max_weight
        self.trust = trust
        self.now = 0.0
        self.entries = []
        self.left = []
        self.counts = dict.fromkeys(RemovalCause, 0)
        self.hits = self.puts = self.evicted_weight = 0
        self.missed = dict.fromkeys(MissCause, 0)
        self.gone = {}
        self.remembers = remembers
        self.watches = []
        self.completed = []
        self.tags = {}
        # The order of drops and the begins of watches.
        self.events = 0
        self.last_drops = {}

    def entry(self, key):
        return next((each for each in self.entries if each.key == key), None)

    def is_dropped(self, entry):
        return any(tag.is_dropped for tag in entry.tags.values())

    def is_current(self, entry):
        return not self.is_dropped(entry) and self.is_trusted(entry.trust)

    def is_trusted(self, word):
        return self.trust is None or (word == self.trust[0] and word % 2 == 1)

    def shown(self):
        """Return the present word of trust."""
        return 0 if self.trust is None else self.trust[0]

    def drop_tag(self, name):
        self.events += 1
        self.last_drops[name] = self.events
        tag = self.tags.pop(name, None)
        if tag is None:
            return 0
        tag.is_dropped = True
        return sum(tag in entry.tags.values() for entry in self.entries)

    def is_live(self, entry):
        return entry is not None and entry.fresh_until > self.now and self.is_current(entry)

    def live(self, key):
        entry = self.entry(key)
        return entry if self.is_live(entry) else None

    @property
    def weight(self):
        return sum(each.weight for each in self.entries)

    def use(self, entry):
        self.entries.remove(entry)
        self.entries.append(entry)

    def evict_one(self):
        self.remove(self.entries[0], EVICTED)

    def leave(self, key, value, fresh_until, cause):
        cause = EXPIRED if fresh_until <= self.now else cause
        self.counts[cause] += 1
        self.left.append((key, value, cause))

    def remove(self, entry, cause):
        self.entries.remove(entry)
        if cause is EVICTED and entry.fresh_until > self.now:
            self.evicted_weight += entry.weight
        if entry.fresh_until <= self.now:
            cause_of_miss = MissCause.EXPIRED
        elif cause is DELETED and self.is_dropped(entry):
            cause_of_miss = MissCause.TAG
        else:
            cause_of_miss = MissCause.NOT_STORED if cause is REPLACED else MissCause(cause.value)
        self.gone[entry.key] = cause_of_miss
        self.leave(entry.key, entry.value, entry.fresh_until, cause)

    def find(self, key, default=None):
        entry = self.live(key)
        if entry is None:
            return default
        self.hits += 1
        self.use(entry)
        return entry.value

    @property
    def misses(self):
        return sum(self.missed.values())

    def miss_cause(self, key):
        """Return the cause of a miss of a key without a live entry."""
        entry = self.entry(key)
        if entry is None:
            return self.gone.get(key, MissCause.NEW) if self.remembers else MissCause.UNKNOWN
        if self.is_dropped(entry):
            return MissCause.TAG
        return MissCause.EXPIRED if entry.fresh_until <= self.now else MissCause.OTHER_PROCESS

    def refused(self, key, outcome):
        if self.entry(key) is None:
            self.gone[key] = MissCause.NOT_STORED
        return outcome

    def set(
        self,
        key,
        value,
        ttl,
        grace=0.0,
        weight=0,
        mode=ANY,
        expected=MISSING,
        watch=None,
        tags=(),
        since=None,
    ):
        fresh_until = inf if ttl is None else self.now + ttl
        expires_at = fresh_until + grace
        entry, live = self.entry(key), self.live(key)
        if watch is not None and watch.broken:
            return self.refused(key, CHANGED)
        if mode == SAME and (live is None or live.value is not expected):
            return CHANGED
        if mode == ABSENT and live is not None:
            return PRESENT
        began = since if watch is None else watch.began
        if began is not None and any(self.last_drops.get(tag, 0) > began for tag in tags):
            return self.refused(key, OUTDATED if watch is None else CHANGED)
        if ttl == KEEP_TTL:
            fresh_until, expires_at = entry.fresh_until, entry.expires_at
        self.tell(key, value, watch, completes=watch is None or self.is_trusted(watch.trust))
        if weight > self.max_weight:
            if entry is not None:
                self.remove(entry, REPLACED)
            return self.refused(key, TOO_HEAVY)
        held = entry.tags if mode == SAME else {name: self.tags.setdefault(name, ModelTag()) for name in tags}
        if entry is not None:
            self.entries.remove(entry)
            self.leave(key, entry.value, entry.fresh_until, REPLACED)
        elif len(self.entries) >= self.max_entries:
            self.evict_one()
        trust = self.shown() if watch is None else watch.trust
        times = {"fresh_until": fresh_until, "expires_at": expires_at}
        self.entries.append(SimpleNamespace(key=key, value=value, **times, weight=weight, trust=trust, tags=held))
        self.puts += 1
        while self.weight > self.max_weight:
            self.evict_one()
        return STORED

    def watch(self, key, wants_value):
        self.events += 1
        watch = SimpleNamespace(key=key, trust=self.shown(), wants_value=wants_value, began=self.events)
        watch.broken, watch.value, watch.is_open = False, MISSING, True
        self.watches.append(watch)
        return watch

    def tell(self, key, value, under, completes):
        for each in self.watches:
            if each.key == key and each.is_open and each is not under:
                each.broken = True
                if each.wants_value and completes:
                    each.value = value
                    each.is_open = False
                    self.completed.append(each)

    def touch(self, key, ttl):
        entry = self.live(key)
        if entry is None:
            return 0
        grace = 0.0 if entry.fresh_until == inf else entry.expires_at - entry.fresh_until
        entry.fresh_until = inf if ttl is None else self.now + ttl
        entry.expires_at = entry.fresh_until + grace
        return STORED

    def delete(self, key, default=None, only_dead=False):
        entry, live = self.entry(key), self.live(key)
        if only_dead:
            if entry is None or live is not None:
                return default
        else:
            for each in self.watches:
                if each.key == key and each.is_open:
                    each.broken = True
        if entry is None:
            return default
        self.remove(entry, DELETED)
        return default if live is None else entry.value

    def remove_value(self, key, value):
        entry = self.entry(key)
        if entry is not None and entry.value is value:
            self.remove(entry, DELETED)

    def evict(self, budget, size=None):
        most = self.max_entries if size is None else size
        for _ in range(budget):
            if len(self.entries) > most:
                self.evict_one()
        return len(self.entries) > most

    def due(self):
        """The keys that an ``advance`` to the end removes."""
        return {each.key for each in self.entries if each.expires_at <= floor(self.now)}

    def advance(self):
        for key in self.due():
            self.remove(self.entry(key), EXPIRED)

    def clear(self):
        for each in self.watches:
            if each.is_open:
                each.broken = True
        detached = len(self.entries)
        self.counts[CLEARED] += detached
        self.gone.update((each.key, MissCause.CLEARED) for each in self.entries)
        self.entries = []
        self.tags = {}
        return detached
