"""The mutants: for each of the most important promises of the package, a small change that breaks it."""

from typing import NamedTuple

CORE = ("tests/core",)
CLAIMS = ("tests/host_cache/test_claims.py",)
TURNS = ("tests/test_turns.py", "tests/engine/loading", "tests/fill_waits")
WRITING = ("tests/engine", "tests/engine/loading", "tests/transactions", "tests/backends")
NEAR = ("tests/near_cache", "tests/backends", "tests/django_backend/test_tiered.py")
PAGES = ("tests/pages",)
TOKENS = ("tests/django_backend/pages/test_csrf_tokens.py",)
REHEARSAL = ("tests/pages/test_rehearsal.py",)


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
        "a copy from an earlier epoch of trust is not returned",
        "core/trust.pxi",
        "(word & 1 and word == load_word(map.trust.word))",
        "(word & 1)",
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
        "jitter makes no TTL longer",
        "core/jitter.pxi",
        "jitter.most) * drawn(jitter)",
        "jitter.most) * (drawn(jitter) - 0.01)",
        CORE,
    ),
    Mutant(
        "a value whose tag was dropped during its computation is not stored",
        "core/tags.pxi",
        "load_word(last_drop(map, name)) >= since:",
        "load_word(last_drop(map, name)) > since + 1000000:",
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
        "the place of a name that is computed, or named by the site, later has the higher rank",
        "core/key_groups.pxi",
        "            if unlikely(group.rank < name.rank):\n"
        "                groups.of_rank[group.rank] -= 1\n"
        "                groups.of_rank[name.rank] += 1\n"
        "                group.rank = name.rank\n",
        "",
        ("tests/core/test_groups.py",),
    ),
    Mutant(
        "a delete breaks the watches of the key, also without an entry",
        "core/python_core.py",
        "elif cause is not EVICTED and self._watched:",
        "elif cause is not EVICTED and self._watched and entry is not None:",
        CORE,
    ),
    Mutant(
        "timeouts count the time during which the machine is suspended",
        "engine/machine_clock.py",
        'getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)',
        "time.CLOCK_MONOTONIC",
        ("tests/engine/runtime/test_suspended_machine.py",),
    ),
    Mutant(
        "a hit counts the time during which the machine is suspended",
        "core/platform.pxi",
        "            read = nanoseconds();\n",
        "            read = now;\n",
        ("tests/engine/runtime/test_suspended_machine.py",),
    ),
    Mutant(
        "a late waiter receives no value",
        "engine/turns.py",
        "turn.is_late = self._is_late_for(other)",
        "turn.is_late = False",
        TURNS,
    ),
    Mutant(
        "a waiter receives no value if a tag that the leader learned was dropped before",
        "engine/turns.py",
        "(self.is_late or (other.names != self._names_before and other.is_outdated()))",
        "self.is_late",
        TURNS,
    ),
    Mutant(
        "the end of trust outdates a computation",
        "engine/turns.py",
        "            or self._core.trust != watch.trust\n",
        "",
        TURNS,
    ),
    Mutant(
        "a turn whose event loop has stopped is ended by the next caller",
        "engine/turns.py",
        "            or (turn.loop is not None and not turn.loop.is_running())\n",
        "",
        TURNS,
    ),
    Mutant(
        "a caller does not end the turn that it has handed over",
        "engine/turns.py",
        "if not self.is_handed_over:",
        "if self.state is not None:",
        TURNS,
    ),
    Mutant(
        "a value is not stored if the source was read again since",
        "engine/turns.py",
        "                turn.watch.broken = True\n",
        "",
        TURNS,
    ),
    Mutant(
        "code that a loader left running is no part of its turn",
        "engine/turns.py",
        "[turn for turn in turns if not turn.loader_returned]",
        "[turn for turn in turns]",
        TURNS,
    ),
    Mutant(
        "a caller with a new lease waits for another process",
        "engine/runtime/request_scope.py",
        "lease.until > now and lease is not new",
        "lease.until > now",
        CLAIMS,
    ),
    Mutant(
        "code with a turn joins a turn that waits for another process only for a limited time",
        "engine/turns.py",
        "if (turn.waits_on or turn).is_behind and",
        "if turn.waits_on is None and turn.is_behind and",
        CLAIMS,
    ),
    Mutant(
        "a load whose time is over after its wait for another process computes nothing",
        "engine/loading/loads.py",
        "if found is MISSING and deadline is not None and deadline <= SystemClock.steady():",
        "if found is TAKEN:",
        CLAIMS,
    ),
    Mutant(
        "the child of a fork releases no claim of its parent",
        "host_cache/claims.py",
        "self._number >= 0 and self._process == os.getpid()",
        "self._number >= 0",
        CLAIMS,
    ),
    Mutant(
        "a queued turn gives way to a caller that can lead",
        "engine/turns.py",
        "elif other.is_queued and other.withdraw():",
        "elif other.is_queued and may_wait and other.withdraw() is None:",
        TURNS,
    ),
    Mutant(
        "an invalid item of set_many changes nothing",
        "engine/writing/entry_writer.py",
        "        for *_, value in begun:\n            check_reusable(value)\n",
        "",
        WRITING,
    ),
    Mutant(
        "a set that is outdated leaves no older value",
        "engine/writing/entry_writer.py",
        "if names and mode == ANY and watch is None:",
        "if not names and mode == ANY and watch is None:",
        WRITING,
    ),
    Mutant(
        "after a delete, no set of an earlier miss is a fill",
        "engine/writing/entry_writer.py",
        "        self.misses.outdate(key)\n",
        "",
        WRITING,
    ),
    Mutant(
        "no waiter receives a value from before a clear",
        "engine/writing/entry_writer.py",
        "                each.cleared()\n",
        "",
        ("tests/fill_waits", *WRITING),
    ),
    Mutant(
        "the listener is notified of every entry that clear removes",
        "engine/writing/entry_writer.py",
        "            more = self._core.drain(BATCH, removed)\n",
        "            more = self._core.drain(BATCH, removed) and False\n",
        WRITING,
    ),
    Mutant(
        "a page is not stored if one of its tags was dropped since its request began",
        "engine/writing/entry_writer.py",
        "since=since or missed",
        "since=missed",
        ("tests/django_backend",),
    ),
    Mutant(
        "a write by others after that of the transaction counts",
        "engine/writing/write_moments.py",
        "if before >= self.since or written != last:",
        "if before >= self.since:",
        ("tests/transactions", "tests/flask_backend/test_transactions.py"),
    ),
    Mutant(
        "an inner transaction's values are as old as its beginning",
        "engine/writing/write_moments.py",
        "        self.since = min(self.since, inner.since)\n",
        "",
        ("tests/flask_backend/test_transactions.py", "tests/transactions"),
    ),
    Mutant(
        "a call that acts below finds no entry whose tag the transaction has dropped",
        "transactions/in_transaction.py",
        "return HIDDEN if found is None and self._has_dropped_tag_of(key) else found",
        "return found",
        ("tests/transactions/test_blocks.py",),
    ),
    Mutant(
        "touch keeps the tags of a value that the transaction has set",
        "transactions/in_transaction.py",
        "self._replace(key, found.value, ttl, found.origin, found.tags)",
        "self._replace(key, found.value, ttl, found.origin, ())",
        ("tests/transactions/test_blocks.py",),
    ),
    Mutant(
        "incr keeps the tags of a value that the transaction has set",
        "transactions/in_transaction.py",
        "found.seconds_left(self._engine.now()), found.origin, found.tags)",
        "found.seconds_left(self._engine.now()), found.origin, ())",
        ("tests/transactions/test_blocks.py",),
    ),
    Mutant(
        "incr keeps the timeout of a value that the transaction has set",
        "transactions/in_transaction.py",
        "codec.encode(total), found.seconds_left(self._engine.now()), found.origin",
        "codec.encode(total), None, found.origin",
        ("tests/transactions/test_blocks.py",),
    ),
    Mutant(
        "a value that is computed after get_many of a key that the transaction has deleted counts as a load",
        "transactions/in_transaction.py",
        "                    self._misses.note(key)",
        "                    pass",
        ("tests/backends/test_load_counts.py",),
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
        "engine/backend_access.py",
        "if not isinstance(error, NOT_DECODED):",
        "if not isinstance(error, Exception):",
        ("tests/backends/test_undecoded.py",),
    ),
    Mutant(
        "a caller that has computed a value that cannot be decoded computes no other one",
        "engine/loading/loads.py",
        "return request.again() if request.computed is MISSING else None",
        "return request.again()",
        ("tests/backends/test_undecoded.py",),
    ),
    Mutant(
        "no copy from before a lost connection is returned",
        "near_cache/near_cache.py",
        "        self._epoch.end()\n",
        "",
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
        "a transaction of the store's database leaves no copies of what it reads",
        "near_cache/near_cache.py",
        "            if self.trusted and not self.is_in_transaction():\n",
        "            if self.trusted:\n",
        ("tests/transactions/test_database_store.py",),
    ),
    Mutant(
        "a transaction that makes the version of a memoized function makes it for all",
        "django_backend/memoized_functions.py",
        "here.add(start, new",
        "here.get_or_set(start, new",
        ("tests/transactions/test_findings.py",),
    ),
    Mutant(
        "a newer value of another process stays when a late one is removed",
        "near_cache/late_values.py",
        "elif _is_same(get(), value):",
        "else:",
        ("tests/backends/test_tiered_fills.py", *NEAR),
    ),
    Mutant(
        "an add whose value was outdated while it was stored returns False",
        "near_cache/near_copies.py",
        "        return added and not (fills and are_outdated(fills))",
        "        return added",
        ("tests/backends/test_tiered_fills.py",),
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
        "pages/storing.py",
        "if request.has_session and COOKIE not in page.fields and not",
        "if not request.has_session and COOKIE not in page.fields and not",
        PAGES,
    ),
    Mutant(
        "a page is not stored if its content coding may hide a token of another visitor",
        "pages/storing.py",
        "if self.settings.tokens is not None and may_hide_tokens(page.headers):",
        "if self.settings.tokens is None and may_hide_tokens(page.headers):",
        TOKENS,
    ),
    Mutant(
        "a token of another visitor is also found in a page that is compressed with gzip",
        "pages/csrf_tokens.py",
        "found = gunzipped(body) if is_compressed else body",
        "found = body",
        TOKENS,
    ),
    Mutant(
        "text in another element than the name of the field is no token",
        "pages/csrf_tokens.py",
        'if b"<" not in between and (not is_short or',
        "if (not is_short or",
        TOKENS,
    ),
    Mutant(
        "an answer with a token has no headers for other caches",
        "pages/blanks.py",
        "OF_THE_BODY | FOR_OTHER_CACHES | {",
        "OF_THE_BODY | {",
        TOKENS,
    ),
    Mutant(
        "each hit with a token renews its cookie",
        "pages/csrf_tokens.py",
        "if second != now:",
        "if not before:",
        TOKENS,
    ),
    Mutant(
        "a response that the companion cannot read is sent all the same",
        "pages/notes.py",
        "except UNEXPECTED:",
        "except ArithmeticError:",
        ("tests/django_backend/pages/test_odd_responses.py", "tests/flask_backend/test_pages.py"),
    ),
    Mutant(
        "a response to a request with Authorization is stored only where RFC 9111 allows it",
        "pages/rules.py",
        "if authorized and not (policy.authorized and given.keys() & ALLOW_AUTHORIZED):",
        "if authorized and not policy.authorized:",
        PAGES,
    ),
    Mutant(
        "a site that wants no response to a request with Authorization stored gets that",
        "pages/rules.py",
        "if authorized and not (policy.authorized and given.keys() & ALLOW_AUTHORIZED):",
        "if authorized and not given.keys() & ALLOW_AUTHORIZED:",
        ("tests/pages/test_rules.py",),
    ),
    Mutant(
        "no request waits for one with Authorization",
        "pages/pages.py",
        "is_alone = authorized or b",
        "is_alone = b",
        ("tests/pages/test_collapsing.py",),
    ),
    Mutant(
        "behind unknown middleware, a page with a CSRF token is not stored",
        "pages/storing.py",
        "if page.blanks is not None and COOKIE in page.fields:",
        "if False:",
        ("tests/django_backend/pages/test_inside.py",),
    ),
    Mutant(
        "behind unknown middleware, a page depends on the whole Cookie header",
        "pages/inside.py",
        "if not notes.knows_middleware:",
        "if False:",
        ("tests/django_backend/pages/test_inside.py",),
    ),
    Mutant(
        "a page whose cookies code in C may have read is not stored",
        "pages/notes.py",
        "            if not part.places:\n",
        "            if part.what:\n",
        ("tests/flask_backend/test_c_readers.py",),
    ),
    Mutant(
        "a test of an attribute that keeps the cookies is no question whether there are any",
        "pages/accesses.py",
        '("LOAD_ATTR", accessed)',
        '("LOAD_ATTR", before[0].offset)',
        ("tests/django_backend/pages/test_keys.py",),
    ),
    Mutant(
        "a page that shows a cookie on which it does not depend is not stored",
        "pages/bodies.py",
        "        if form in shown:",
        "        if form == shown:",
        ("tests/pages/test_shown_cookies.py",),
    ),
    Mutant(
        "paths that differ in an encoded slash have different keys",
        "pages/keys.py",
        'return path if "%2f" in path.lower() else ""',
        'return path if "%2f" in path else ""',
        PAGES,
    ),
    Mutant(
        "a cookie that is sent twice has both values in the key",
        "pages/variants.py",
        'found[name] + b";" + value if name in found else value',
        "value",
        PAGES,
    ),
    Mutant(
        "a response cannot outdate pages of another host",
        "pages/storing.py",
        "            if host.lower() == request.host.lower():\n                return",
        "            if host:\n                return",
        PAGES,
    ),
    Mutant(
        "must-revalidate forbids stale pages",
        "pages/rules.py",
        "        if given.keys() & NEVER_STALE:\n            return 0.0\n",
        "",
        PAGES,
    ),
    Mutant(
        "a page with tokens whose body changes inside the cache is not stored",
        "pages/run.py",
        "if blanked is None or blanked.body != body:",
        "if blanked is None:",
        ("tests/django_backend/pages/test_inside.py",),
    ),
    Mutant(
        "four reruns of a rehearsal run at the same time, at most",
        "pages/rehearsing.py",
        "if self._running >= MOST_RUNNING:",
        "if self._running < 0:",
        REHEARSAL,
    ),
    Mutant(
        "a comparison gives its bytes back",
        "pages/rehearsing.py",
        "            self._compared -= size\n",
        "",
        REHEARSAL,
    ),
    Mutant(
        "a view is compared more and more rarely",
        "pages/rehearsing.py",
        "self._share * min(1.0, UNLIMITED_RERUNS / (self._reruns.get(page.view) or 1))",
        "self._share",
        REHEARSAL,
    ),
    Mutant(
        "a wrong page is compared once more after a minute, and then no more",
        "pages/comparison.py",
        "if found.kind is not Kind.WRONG or self._outcome is not None or self._is_late:",
        "if found.kind is not Kind.WRONG or self._is_late:",
        REHEARSAL,
    ),
    Mutant(
        "a rerun does not see what the visitor's run wrote into the state",
        "pages/asgi.py",
        '            scope["state"] = dict(scope["state"])\n',
        "            pass\n",
        REHEARSAL,
    ),
]
