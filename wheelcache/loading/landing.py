"""The end of a flight: its value is stored, or its error recorded, and the waiters go on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from math import inf
from typing import Any, cast

from wheelcache.core.contract import Core, Watch
from wheelcache.loading.adaptive import KEEP, no_previous
from wheelcache.loading.backoff import Backoff
from wheelcache.loading.flight_table import Flight, FlightTable
from wheelcache.loading.recent_failures import RecentFailures
from wheelcache.loading.request import Loaded, LoadRequest, Stored, Target, Unstored
from wheelcache.loading.steps import Outcome
from wheelcache.stats import Meter


@dataclass(slots=True, eq=False)
class Landing:
    """Ends the flights of one cache.

    Args:
        flights: the table, whose lock guards ``backoff``.
        counts, backoff, failures: the records of loads.
    """

    _core: Core
    _target: Target
    _flights: FlightTable
    _counts: Meter
    _backoff: Backoff
    _failures: RecentFailures

    def loaded(self, flight: Flight, request: LoadRequest, value: Any) -> Outcome:
        """Store the value and end the flight. Return the value, or the error of a weigher."""
        stored: Stored | None = None
        try:
            if isinstance(value, Unstored):
                value = value.value
            else:
                if isinstance(value, Loaded):
                    request.ttl, value = value.ttl, value.value
                if value is KEEP:
                    raise no_previous(request.caller_key)
                if self._flights.leads(flight) and not flight.superseded:
                    stored = self._store(flight, request, value)
            if flight.superseded:
                # Drop an older value before the caller continues. The thread that superseded the flight may be slower.
                self.drop_other(flight.key, value)
            self._counts.ended(self._core.now() - flight.started, "loads")
            with self._flights.lock:
                self._backoff.succeeded(flight.key)
            self._flights.land(flight)
            flight.end(value, None)
        except BaseException as error:
            self._target.interrupted()
            self.failed(flight, error)
            return None, error
        if stored is not None:
            try:
                self._target.announce(*stored)
            except BaseException:
                self._target.interrupted()
                raise
        return value, None

    def _store(self, flight: Flight, request: LoadRequest, value: Any) -> Stored | None:
        policy = request.policy
        ttl, grace = request.ttl, policy.grace or policy.keep or policy.fill_grace
        if value is None and policy.negative_ttl is not None:
            ttl, grace = policy.negative_ttl, 0.0
        if policy.longest is not None:
            longest = policy.longest(flight.key)
            ttl = longest if ttl is None else min(ttl, longest)
            if policy.past_end:
                grace = policy.past_end + (longest - ttl if longest < inf else 0.0)
        if ttl is not None and ttl <= 0.0:
            # An older value that is kept past its time must not be returned after this one.
            if not policy.past_end or self._is_other(flight.key, value):
                self._target.discard(flight.key)
            return None
        return self._target.store(flight.key, value, ttl, grace, cast("Watch", flight.watch), request.names)

    def drop_other(self, key: Any, value: Any) -> None:
        """Delete the entry of ``key`` unless its value is known to equal ``value``, which was read from the source."""
        if self._is_other(key, value):
            self._target.delete(key)

    def _is_other(self, key: Any, value: Any) -> bool:
        record = self._core.peek(key)
        return record is not None and not _is_same(record.value, value)

    def failed(self, flight: Flight, error: BaseException) -> None:
        """End the flight with an error."""
        is_first = flight.outcome is None
        if is_first:
            self._counts.ended(self._core.now() - flight.started, "load_failures")
        self._flights.land(flight)
        flight.end(None, error)
        if is_first:
            self._failures.note(error)

    def abandon(self, flight: Flight) -> None:
        """End the flight without an outcome, unless it has ended. Its waiters look again, and one of them leads."""
        self._flights.land(flight)
        flight.end(None, asyncio.CancelledError())

    def found_nothing(self, flight: Flight) -> None:
        """End a flight whose key was not found by a load of many keys. It counts as a load, and waiters look again."""
        self._counts.ended(self._core.now() - flight.started, "loads")
        self.abandon(flight)


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are known to be equal. They may have an ``__eq__`` of their own."""
    try:
        return one is other or (type(one) is type(other) and bool(one == other))
    except Exception:
        return False
