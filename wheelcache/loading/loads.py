"""Loading for one cache: single flight, stale values, refreshes, timeouts, on the contract of a core.

The keys and TTLs are those of the callers: ``Cache``, ``memoize``, the backends, the near cache. A look-up that missed
comes here with a ``LoadRequest``. It immediately gets a stale value, joins a flight, or leads one. The leader claims
the key in the table, watches it, looks again, runs the loader, and stores the value under the watch. If a set, a delete
or a clear has broken the watch, only the callers that joined before receive the value, and it is not stored.

A look-up counts once, when it has ended: as a hit of the core if the core finds a value, as a stale hit if a stale
value is served, otherwise as a miss.

No lock is held while a loader, a listener, a weigher or a log handler runs. Each ``finally`` here ends the claims of
its generator: an exception that arrives at any point leaves no flight without a leader, and no caller waiting.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from wheelcache.coherence.key_stamps import KeyStamps
from wheelcache.core.access import Lifetime
from wheelcache.core.contract import DEAD, MISSING, Core, Record, Removals, Times
from wheelcache.errors import LoadDeadlock, LoadTimeout
from wheelcache.keys import KeyProxies
from wheelcache.loading import wait_graph
from wheelcache.loading.adaptive import AdaptiveLoaders, check_has_no_refresh_ahead, takes_previous
from wheelcache.loading.background import BACKGROUND, Background, Handed
from wheelcache.loading.backoff import Backoff, Refreshes
from wheelcache.loading.flight_table import Flight, FlightTable, Ticket
from wheelcache.loading.landing import Landing
from wheelcache.loading.many_loads import ManyLoads
from wheelcache.loading.policy import LoadPolicy
from wheelcache.loading.recent_failures import RecentFailures
from wheelcache.loading.request import LoadRequest, Target
from wheelcache.loading.steps import InSteps, Loader, Outcome, Steps, StepsTo, Wait, call
from wheelcache.runtime.clock import SystemClock
from wheelcache.stats import LOAD_COUNTS, Meter

logger = logging.getLogger("wheelcache")


def stale_record(core: Core, key: Hashable, grace: float) -> Record | None:
    """Return the entry of ``key`` if it is stale since less than ``grace`` seconds, which counts as a use of it."""
    now = core.now()

    def is_within_grace(times: Times) -> bool:
        return times.fresh_until <= now < min(times.expires_at, times.fresh_until + grace)

    times = core.times(key)
    if times is None or not is_within_grace(times):
        return None
    # Only now, since this counts as a use of the entry.
    record = core.peek(key, use=True)
    return record if record is not None and record.times.is_current and is_within_grace(record.times) else None


class Loads:
    """The loads of one cache.

    Args:
        core: the core of the cache.
        target: stores the values.
        stamps: the writes of other processes.
        keys: adapts the callers' keys.
        cache_is_used: called at a failed load.

    Attributes:
        adaptive: wraps loaders that receive the previous value, or choose the lifetime.
        counts: the counts of the loads.
        failures: the recent exceptions of loaders.
        many: loads many keys by one call.
    """

    def __init__(
        self, core: Core, target: Target, stamps: KeyStamps, keys: KeyProxies, cache_is_used: Callable[[], object]
    ) -> None:
        self._core = core
        self._target = target
        self._stamps = stamps
        self._keys = keys
        self._flights = FlightTable()
        self._backoff = Backoff()
        self._refreshes = Refreshes()
        self._is_closed = False
        self.adaptive = AdaptiveLoaders(core, keys)
        self.counts = Meter(*LOAD_COUNTS)
        self.failures = RecentFailures(cache_is_used)
        self._landing = Landing(core, target, self._flights, self.counts, self._backoff, self.failures)
        self.many = ManyLoads(core, target, stamps, keys, self._flights, self._landing)

    # Requests.

    def request(
        self, key: Hashable, loader: Loader, ttl: Lifetime, policy: LoadPolicy, tags: tuple[str, ...] = ()
    ) -> LoadRequest:
        """Return a request for ``load``. It answers the miss of ``key``, so no later ``set`` by the caller is a fill.

        Raises:
            TypeError, ValueError: if ``ttl`` is neither a number of seconds > 0 nor None.
        """
        seconds = None if callable(ttl) else self._target.seconds(ttl)
        plain, _ = self._target.begin(key)
        if not isinstance(loader, InSteps) and (callable(ttl) or takes_previous(loader)):
            loader = self.adaptive.loader(key, loader, ttl, policy)
        return LoadRequest(plain, key, plain, loader, seconds, policy, self._target.tag_names(plain, tags))

    def load_or_refresh(
        self, key: Hashable, found: Any, loader: Loader, ttl: Lifetime, policy: LoadPolicy, tags: tuple[str, ...] = ()
    ) -> Steps:
        """Return the value of ``key``, for which a ``find`` returned ``found``: load it if that is MISSING, otherwise
        refresh it. In a task, an awaitable result of ``loader()`` is awaited."""
        request = self.request(key, loader, ttl, policy, tags)
        if found is MISSING:
            return (yield from self.load(request))
        times = self._core.times(request.key)
        if times is not None:
            request.fresh_until = times.fresh_until
        self._start_refresh(request, (yield BACKGROUND))
        return found, None

    def load_apart(
        self, key: Hashable, loader: Loader, ttl: Lifetime, policy: LoadPolicy, tags: tuple[str, ...] = ()
    ) -> Steps:
        """Load for callers that share flights only with each other, not with other loads of ``key``.

        ``loader()`` returns an ``Unstored``. As in other loads, a write of ``key`` outdates its value, and
        waiters receive the old value of ``key`` within the policy's ``fill_grace``.
        """
        request = self.request(("load", key), loader, ttl, policy, tags)
        request.watched = self._keys.adapt(key)
        return self.load(request)

    def needs_refresh(self, key: Hashable, value: Any, ttl: Lifetime, policy: LoadPolicy) -> bool:
        """Return whether the share ``refresh_ahead`` of the TTL has passed for ``value``, which a ``find`` has found.

        Raises:
            TypeError, ValueError: if ``ttl`` is wrong, even if there is nothing to refresh.
        """
        if callable(ttl):
            check_has_no_refresh_ahead(ttl, policy)
            return False
        seconds = self._target.seconds(ttl)
        if value is None and policy.negative_ttl is not None:
            seconds = policy.negative_ttl
        if policy.refresh_ahead is None or seconds is None:
            return False
        times = self._core.times(self._keys.adapt(key))
        return times is not None and times.fresh_until - self._core.now() < (1 - policy.refresh_ahead) * seconds

    def get_stale(self, key: Hashable, grace: float) -> Any:
        """Return the old value of ``key`` during an outage of its source, or MISSING: one within ``grace`` seconds past
        its TTL, which it was stored with, or from a past epoch of trust."""
        record = self._core.peek(self._keys.adapt(key))
        if record is None or self._core.now() >= min(record.times.expires_at, record.times.fresh_until + grace):
            return MISSING
        if not record.times.is_current and self._stamps.reports_writes:
            return MISSING
        self.counts.add("stale_hits")
        return record.value

    # Monitoring and lifecycle.

    def keys_in_progress(self) -> list[Any]:
        """Return the keys that are being loaded. Deleting a pattern deletes them, too."""
        return self._flights.keys()

    @property
    def is_idle(self) -> bool:
        """Whether no load is in progress and no refresh waits for a thread."""
        return not self._flights and not self._refreshes

    def forget_failures(self) -> None:
        """Forget which loads failed, since the cache is cleared: every key may be loaded again immediately."""
        with self._flights.lock:
            self._backoff.clear()

    def after_fork_in_child(self) -> None:
        """Forget the flights and refreshes, whose leaders and threads are in the parent process."""
        self._flights.after_fork_in_child()
        self._refreshes = Refreshes()
        self.counts.count_from_zero()
        self.failures.start_over()

    def close(self) -> None:
        """Let the loads in progress fail quietly with the error of the core's gate, which is shut for good."""
        self._is_closed = True
        self.forget_failures()

    # A look-up.

    def load(self, request: LoadRequest) -> Steps:
        """Return the value of a key, after a ``find`` that missed.

        Raises:
            LoadDeadlock: if the loader needs the key that it loads, itself or through other loaders.
            LoadTimeout: if the timeout has passed and there is no stale value.
        """
        background = yield BACKGROUND
        policy = request.policy
        outcome: Outcome | None = None
        try:
            # With a timeout, a fresh value is preferred for that long, unless loading failed recently.
            if policy.grace and (policy.timeout is None or not self._may_try(request.key)):
                stale = self._stale(request, policy.grace)
                if stale is not MISSING:
                    self._start_refresh(request, background)
                    return stale, None
            deadline = None if policy.timeout is None else SystemClock.steady() + policy.timeout
            while outcome is None:
                outcome = yield from self._fly(request, deadline, background)
            return outcome
        finally:
            # A copy that is kept for the caller may still turn a failure into a hit, so the caller counts it.
            if outcome is None or outcome[1] is not None:
                is_left_to_caller = policy.keep > 0
            else:
                is_left_to_caller = request.leaves_miss and outcome[0] is MISSING
            # The caller of a load apart has counted its look-up of the key.
            if not (request.is_counted or is_left_to_caller or request.key is not request.watched):
                request.is_counted = True
                self._core.count(misses=1)

    def _fly(self, request: LoadRequest, deadline: float | None, background: Background) -> StepsTo[Outcome | None]:
        """Lead a flight, or wait for one. Return None if the caller has to look again."""
        may_wait = not self._is_in_step()
        ticket = Ticket(Flight(self._flights, request.key, self._core.now(), request.names))
        try:
            try:
                self._flights.join(ticket, blocking=background.blocking, may_wait=may_wait)
            except LoadDeadlock as error:
                return self._stale_instead(request, error)
            if ticket.leads:
                return (yield from self._lead(ticket, request, deadline, background))
            return (yield from self._wait(ticket, request, deadline))
        finally:
            # Both are necessary only after an interruption.
            try:
                if ticket.owns:
                    self._landing.abandon(ticket.own)
            finally:
                ticket.edge.end()

    def _lead(
        self, ticket: Ticket, request: LoadRequest, deadline: float | None, background: Background
    ) -> StepsTo[Outcome | None]:
        flight = ticket.own
        flight.watch = self._stamps.watch(request.watched)
        found = self._find(request)
        if found is not MISSING:
            # The waiters look again.
            self._landing.abandon(flight)
            return found, None
        if deadline is not None:
            handed = self._hand_over(ticket, request, deadline, background)
            if handed is Handed.TAKEN:
                return (yield from self._wait(ticket, request, deadline))
            if handed is Handed.NO_ROOM:
                self._landing.abandon(flight)
                return self._timed_out(request)
        value, error = yield from call(request.loader, (flight.lead,))
        if error is None:
            value, error = self._landing.loaded(flight, request, value)
        elif request.policy.shares(error):
            self._landing.failed(flight, error)
        else:
            self._landing.abandon(flight)
        return (value, None) if error is None else self._stale_instead(request, error)

    def _wait(self, ticket: Ticket, request: LoadRequest, deadline: float | None) -> StepsTo[Outcome | None]:
        """Wait for the flight that the caller has joined or handed over. Return None if it has to look again."""
        flight = ticket.flight
        if request.policy.fill_grace and not ticket.leads:
            stale = self._stale(request, request.policy.fill_grace)
            if stale is not MISSING:
                ticket.edge.end()
                return stale, None
        is_late = not ticket.leads and self._is_outdated(flight)
        if is_late:
            # The key was written since the leader began, so the value may be there.
            found = self._find(request)
            if found is not MISSING:
                ticket.edge.end()
                return found, None
        names = flight.names
        yield Wait(flight.ended, deadline)
        ticket.edge.end()
        if flight.outcome is None:
            return self._timed_out(request)
        value, error = flight.outcome
        if error is None:
            if is_late or (flight.names != names and self._is_outdated(flight)):
                # One of the tags that the flight learned may have been dropped before this caller asked.
                return None
            if not ticket.leads:
                self.counts.add("coalesced")
            return value, None
        if isinstance(error, Exception):
            stale = self._stale(request, request.policy.grace) if request.policy.fail_safe else MISSING
            return (None, error) if stale is MISSING else (stale, None)
        # Any other error (a cancellation, an exit) is about the leader, not about the value.
        return (None, error) if ticket.leads else None

    def _is_outdated(self, flight: Flight) -> bool:
        """Return whether this or another process has written the key, or dropped a tag, since the leader's watch
        began."""
        watch = flight.watch
        # Without a watch, the loader has not begun.
        return flight.superseded or (
            watch is not None
            and (
                watch.broken
                or self._stamps.seen(watch.key) != watch.seen
                or (flight.names != () and self._core.dropped_since(flight.names, watch.since))
            )
        )

    def _is_in_step(self) -> bool:
        """Return whether the garbage collector runs this code during a step of the cache. Loads of other threads may
        wait for the end of that step."""
        return self._core.in_step or self._flights.in_step or wait_graph.in_step()

    def _find(self, request: LoadRequest) -> Any:
        # Marked first, so that a look-up counts at most once if it is interrupted.
        request.is_counted = True
        found = self._core.find(request.key, MISSING)
        request.is_counted = request.is_hit = found is not MISSING
        return found

    def _timed_out(self, request: LoadRequest) -> Outcome:
        request.given_up = True
        self.counts.add("load_timeouts")
        stale = self._stale(request, request.policy.grace)
        if stale is MISSING:
            return None, LoadTimeout(request.caller_key, request.policy.timeout or 0.0)
        return stale, None

    # In the background.

    def _hand_over(self, ticket: Ticket, request: LoadRequest, deadline: float, background: Background) -> Handed:
        flight = ticket.own
        flight.waited_for = True
        steps = self._load_handed_over(flight, request, background)
        handed = background.load(steps, flight.lead, deadline, partial(self._landing.abandon, flight))
        if handed is Handed.TAKEN:
            ticket.owns = False
        elif handed is Handed.NO_ROOM:
            self.counts.add("refreshes_dropped")
        return handed

    def _load_handed_over(self, flight: Flight, request: LoadRequest, background: Background) -> Steps:
        try:
            # The flight has ended if the caller was interrupted while it handed the flight over.
            if flight.outcome is None:
                return (yield from self._load_in_background(flight, request, background, is_refresh=False))
            return None, None
        finally:
            self._landing.abandon(flight)

    def _load_in_background(
        self, flight: Flight, request: LoadRequest, background: Background, *, is_refresh: bool
    ) -> Steps:
        value, error = yield from call(request.loader, (flight.lead,))
        if error is None:
            _, error = self._landing.loaded(flight, request, value)
        elif not background.blocking and not isinstance(error, Exception):
            # A cancellation: the loop ends.
            self._landing.failed(flight, error)
            return None, error
        if error is not None:
            self._failed_in_background(flight, request, error, is_refresh)
        return None, None

    def _failed_in_background(
        self, flight: Flight, request: LoadRequest, error: BaseException, is_refresh: bool
    ) -> None:
        if self._is_closed:
            self._flights.land(flight)
            flight.end(None, error)
            return
        now = self._core.now()
        with self._flights.lock:
            pause = self._backoff.failed(request.key, now)
        removed: Removals = []
        if not (request.policy.fail_safe or request.policy.fill_grace):
            # A stale value would be served as if nothing had happened, and no caller would ever see the error.
            self._core.delete(request.key, only=DEAD, removed=removed)
        self._landing.failed(flight, error)
        try:
            if is_refresh or request.policy.fail_safe or request.given_up:
                # Otherwise it is raised to the waiters.
                self._log_failure(request, error, pause)
        finally:
            if removed:
                self._target.announce(0, removed)

    def _log_failure(self, request: LoadRequest, error: BaseException, pause: float) -> None:
        logger.warning(
            "Loading %r into the cache %r failed; the next refresh waits for %.1f s.",
            request.caller_key,
            self._target.name,
            pause,
            exc_info=error,
        )

    # Stale values and refreshes.

    def _may_try(self, key: Any) -> bool:
        now = self._core.now()
        with self._flights.lock:
            return self._backoff.is_over(key, now)

    def _stale(self, request: LoadRequest, grace: float) -> Any:
        """Return a stale value that the caller may have, which ends the look-up; otherwise MISSING."""
        record = stale_record(self._core, request.watched, grace)
        if record is None:
            return MISSING
        request.fresh_until = record.times.fresh_until
        request.is_counted = request.is_hit = True
        self.counts.add("stale_hits")
        return record.value

    def _stale_instead(self, request: LoadRequest, error: BaseException) -> Outcome:
        """Return the stale value if the caller's own load failed and the caller may have it; otherwise the error."""
        if not request.policy.fail_safe or not isinstance(error, Exception):
            return None, error
        stale = self._stale(request, request.policy.grace)
        if stale is MISSING:
            return None, error
        now = self._core.now()
        with self._flights.lock:
            pause = self._backoff.failed(request.key, now)
        self._log_failure(request, error, pause)
        return stale, None

    def _start_refresh(self, request: LoadRequest, background: Background) -> None:
        # Before the claim, so that an exception at any later point releases it.
        end = partial(self._refreshes.end, request)
        try:
            if not self._claims_refresh(request):
                return
            started = background.refresh(self._refresh(request, background), end)
            self.counts.add("refreshes" if started else "refreshes_dropped")
            if not started:
                end()
        except BaseException:
            end()
            raise

    def _claims_refresh(self, request: LoadRequest) -> bool:
        now = self._core.now()
        with self._flights.lock:
            return (
                self._is_wanted(request)
                and not self._flights.is_claimed(request.key)
                and self._backoff.is_over(request.key, now)
                and self._refreshes.claim(request)
            )

    def _is_wanted(self, request: LoadRequest) -> bool:
        """Return whether the entry was neither deleted nor loaded since the caller looked."""
        times = self._core.times(request.key)
        return times is not None and times.fresh_until <= request.fresh_until

    def _refresh(self, request: LoadRequest, background: Background) -> Steps:
        flight = Flight(self._flights, request.key, self._core.now(), request.names)
        try:
            if self._flights.claim(flight):
                flight.watch = self._stamps.watch(request.watched)
                if self._is_wanted(request):
                    return (yield from self._load_in_background(flight, request, background, is_refresh=True))
                self._landing.abandon(flight)
            return None, None
        finally:
            # In this order: a key that is not being refreshed may be loaded.
            try:
                self._landing.abandon(flight)
            finally:
                self._refreshes.end(request)
