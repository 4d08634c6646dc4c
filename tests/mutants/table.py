"""The mutants: for each of the most important promises of the package, a small change that breaks it."""

from typing import NamedTuple

CORE = ("tests/core",)
TURNS = ("tests/test_turns.py", "tests/loading", "tests/leases")
WRITING = ("tests/engine", "tests/loading", "tests/coherence", "tests/transactions", "tests/backends")
COHERENCE = ("tests/coherence", "tests/transactions", "tests/backends", "tests/django_backend/test_coherence.py")
NEAR = ("tests/near_cache", "tests/backends", "tests/django_backend/test_tiered.py")
PAGES = ("tests/http_cache",)


class Mutant(NamedTuple):
    """A change of the meaning of the package.

    Attributes:
        promise: what no longer holds after the change.
        file: the file in ``wheelcache/``.
        old, new: text that occurs once in the file, and its replacement.
        tests: the tests that detect the change.
    """

    promise: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTANTS = [
    Mutant(
        "a value under a broken watch is not stored",
        "core/writes.pxi",
        "if under is not None and under.broken:",
        "if under is not None and under.broken and index:",
        CORE,
    ),
    Mutant(
        "a fill that another process's write outdated is not stored",
        "core/writes.pxi",
        "!= write.stamp or is_committing",
        "!= write.stamp and is_committing",
        CORE,
    ),
    Mutant(
        "touch keeps the grace of an entry",
        "core/writes.pxi",
        "fresh_until + (due - entry.fresh_until)",
        "fresh_until",
        CORE,
    ),
    Mutant(
        "an entry that has expired counts as expired, whatever removes it",
        "core/map.pxi",
        "    if entry.fresh_until <= now:\n        cause = EXPIRED\n",
        "",
        CORE,
    ),
    Mutant(
        "a restored entry evicts no other",
        "core/map.pxi",
        "if index == 0 and is_full(map):\n        return False",
        "if index == 0 and is_full(map):\n        return True",
        CORE,
    ),
    Mutant(
        "jitter makes no TTL longer",
        "core/jitter.pxi",
        "jitter.most) * drawn(jitter)",
        "jitter.most) * (drawn(jitter) - 0.01)",
        CORE,
    ),
    Mutant(
        "a value whose tag was dropped during its computation is not stored",
        "core/tags.pxi",
        "if since and (dropped >= since or",
        "if since and (dropped > since + 1000000 or",
        CORE,
    ),
    Mutant(
        "a tag that another process dropped removes its entries here",
        "core/tags.pxi",
        "if tag is not None and tag.stamp == stamp:",
        "if tag is not None:",
        CORE,
    ),
    Mutant(
        "SAME stores only if the entry has the expected value",
        "core/writes.pxi",
        "if not is_there or at(entries, index).value is not write.expected:",
        "if not is_there:",
        CORE,
    ),
    Mutant(
        "a delete breaks the watches of the key, also without an entry",
        "core/python_core.py",
        "if self._watched:\n                    self._watches.break_watches(key)",
        "if self._watched and entry is not None:\n                    self._watches.break_watches(key)",
        CORE,
    ),
    Mutant(
        "a late waiter receives no value",
        "turns.py",
        "turn.is_late = self._is_late_for(other)",
        "turn.is_late = False",
        TURNS,
    ),
    Mutant(
        "a waiter receives no value if a tag that the leader learned was dropped before",
        "turns.py",
        "(self.is_late or (other.names != self._names_before and other.is_outdated()))",
        "self.is_late",
        TURNS,
    ),
    Mutant(
        "a write by another process outdates a computation",
        "turns.py",
        "            or self._seen(watch.key) != watch.seen\n",
        "",
        TURNS,
    ),
    Mutant(
        "a turn whose event loop has stopped is ended by the next caller",
        "turns.py",
        "            or (turn.loop is not None and not turn.loop.is_running())\n",
        "",
        TURNS,
    ),
    Mutant(
        "a caller does not end the turn that it has handed over",
        "turns.py",
        "if not self.is_handed_over:",
        "if self.state is not None:",
        TURNS,
    ),
    Mutant(
        "a value is not stored if the source was read again since",
        "turns.py",
        "                turn.watch.broken = True\n",
        "",
        TURNS,
    ),
    Mutant(
        "code that a loader left running is no part of its turn",
        "turns.py",
        "[turn for turn in turns if not turn.loader_returned]",
        "[turn for turn in turns]",
        TURNS,
    ),
    Mutant(
        "a queued turn gives way to a caller that can lead",
        "turns.py",
        "elif other.is_queued and other.withdraw():",
        "elif other.is_queued and may_wait and other.withdraw() is None:",
        TURNS,
    ),
    Mutant(
        "an invalid item of set_many changes nothing",
        "writing/entry_writer.py",
        "        for *_, value in begun:\n            check_reusable(value)\n",
        "",
        WRITING,
    ),
    Mutant(
        "a set that is outdated leaves no older value",
        "writing/entry_writer.py",
        "if tags and outcome == OUTDATED and mode == ANY:",
        "if not tags and outcome == OUTDATED and mode == ANY:",
        WRITING,
    ),
    Mutant(
        "after a delete, no set of an earlier miss is a fill",
        "writing/entry_writer.py",
        "        self.misses.outdate(key)\n",
        "",
        WRITING,
    ),
    Mutant(
        "no waiter receives a value from before a clear",
        "writing/entry_writer.py",
        "            self.leases.cleared()\n",
        "",
        ("tests/leases", *WRITING),
    ),
    Mutant(
        "the listener is notified of every entry that clear removes",
        "writing/entry_writer.py",
        "            more = self._core.drain(BATCH, removed)\n",
        "            more = self._core.drain(BATCH, removed) and False\n",
        WRITING,
    ),
    Mutant(
        "a set long after the miss is no fill",
        "coherence/misses.py",
        " or self._core.now() - miss.missed_at > FILL_WINDOW",
        "",
        COHERENCE,
    ),
    Mutant(
        "a commit in progress keeps fills of its keys out",
        "coherence/key_stamps.py",
        "return None if is_marked(stamps.commits, slot) and stamps.is_committing(slot) else seen",
        "return seen",
        COHERENCE,
    ),
    Mutant(
        "entries from before the stamps were removed are not returned",
        "coherence/key_stamps.py",
        "self._use(stamps, keep=False)",
        "self._use(stamps, keep=True)",
        COHERENCE,
    ),
    Mutant(
        "the marks of a killed process outdate the computations that began before",
        "coherence/commits.py",
        "            outdate(place, PLACES)\n",
        "",
        ("tests/transactions", *COHERENCE),
    ),
    Mutant(
        "a write by others after that of the transaction counts",
        "coherence/write_moments.py",
        "if before >= self.since or written != last:",
        "if before >= self.since:",
        ("tests/transactions", *COHERENCE),
    ),
    Mutant(
        "an inner transaction's values are as old as its beginning",
        "coherence/write_moments.py",
        "        self.since = min(self.since, inner.since)\n",
        "",
        ("tests/flask_backend/test_transactions.py", *COHERENCE),
    ),
    Mutant(
        "a value that is set in place of one that cannot be decoded stays",
        "core/_core.pyx",
        "if index and at(&self.map.entries, index).value == <PyObject *>value:",
        "if index:",
        ("tests/core/test_contract.py",),
    ),
    Mutant(
        "an exception of a signal handler during a decoding reaches the caller",
        "backend_access.py",
        "if not isinstance(error, NOT_DECODED):",
        "if not isinstance(error, Exception):",
        ("tests/backends/test_undecoded.py",),
    ),
    Mutant(
        "a caller that has computed a value that cannot be decoded computes no other one",
        "loading/loads.py",
        "return request.again() if request.computed is MISSING else None",
        "return request.again()",
        ("tests/backends/test_undecoded.py",),
    ),
    Mutant(
        "no copy from before a lost connection is returned",
        "near_cache/near_cache.py",
        "            self._epoch.is_notified = False\n            self._epoch.write_all()\n",
        "            self._epoch.is_notified = False\n",
        NEAR,
    ),
    Mutant(
        "a copy ends with the timeout that this process gave to the value",
        "near_cache/written_timeouts.py",
        "max(ends_at - now, 0.0)",
        "max(is_over_at - now, 0.0)",
        NEAR,
    ),
    Mutant(
        "a value that was outdated while it was stored is removed from the store",
        "near_cache/near_cache.py",
        "if undo is not None and (is_marked or (computation is not None and computation.is_outdated)):",
        "if undo is not None and is_marked:",
        ("tests/backends/test_tiered_fills.py", *NEAR),
    ),
    Mutant(
        "a caller that missed before another one stored the value finds it in the store",
        "near_cache/near_cache.py",
        "if op.watch is None or self._engine.is_outdated(op.watch):",
        "if op.watch is None:",
        NEAR,
    ),
    Mutant(
        "a newer value of another process stays when a late one is removed",
        "near_cache/late_values.py",
        "elif _is_same(get(), value):",
        "else:",
        ("tests/backends/test_tiered_fills.py", *NEAR),
    ),
    Mutant(
        "a token that was read after the computation began proves nothing",
        "near_cache/tokens.py",
        "if read == token and read_at <= since:",
        "if read == token:",
        NEAR,
    ),
    Mutant(
        "a page of a visitor with a session is not stored unless it depends on it",
        "http_cache/storing.py",
        "if request.has_session and COOKIE not in page.fields and not",
        "if not request.has_session and COOKIE not in page.fields and not",
        PAGES,
    ),
    Mutant(
        "a response to a request with Authorization is stored only where RFC 9111 allows it",
        "http_cache/rules.py",
        "if authorized and not (policy.authorized and given.keys() & ALLOW_AUTHORIZED):",
        "if authorized and not policy.authorized:",
        PAGES,
    ),
    Mutant(
        "paths that differ in an encoded slash have different keys",
        "http_cache/keys.py",
        'return path if "%2f" in path.lower() else ""',
        'return path if "%2f" in path else ""',
        PAGES,
    ),
    Mutant(
        "a cookie that is sent twice has both values in the key",
        "http_cache/variants.py",
        'found[name] + b";" + value if name in found else value',
        "value",
        PAGES,
    ),
    Mutant(
        "a response cannot outdate pages of another host",
        "http_cache/storing.py",
        "            if host.lower() == request.host.lower():\n                return",
        "            if host:\n                return",
        PAGES,
    ),
    Mutant(
        "must-revalidate forbids stale pages",
        "http_cache/rules.py",
        "        if given.keys() & NEVER_STALE:\n            return 0.0\n",
        "",
        PAGES,
    ),
]
