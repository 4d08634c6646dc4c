"""Loading many keys by one call of a loader."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any

from wheelcache.core.contract import MISSING, Core
from wheelcache.loading.flight_table import Flight, FlightTable
from wheelcache.loading.landing import Landing
from wheelcache.loading.policy import LoadPolicy
from wheelcache.loading.request import LoadRequest
from wheelcache.loading.steps import Call, Steps
from wheelcache.loading.target import Target


class ManyLoads:
    """The loads of many keys of one cache. Each key that no other caller is loading gets a flight."""

    __slots__ = ("_core", "_flights", "_landing", "_target")

    def __init__(self, core: Core, target: Target, flights: FlightTable, landing: Landing) -> None:
        self._core = core
        self._target = target
        self._flights = flights
        self._landing = landing

    def read_beside(self, key: Any, value: Any) -> None:
        """Compare the entry with a value that was read elsewhere: see ``Loads.read_beside``."""
        self._flights.supersede(key)
        record = self._core.peek(key)
        if record is not None and not _is_same(record.value, value):
            self._target.delete(key)

    def steps(
        self, keys: Mapping[Any, Hashable], loader: Callable[[list[Any]], Any], ttl: float | None, policy: LoadPolicy
    ) -> Steps:
        flights: list[Flight] = []
        try:
            now = self._core.now()
            for key in keys:
                flight = self._flights.flight(key, now)
                flights.append(flight)
                if self._flights.claim(flight):
                    flight.watch = self._target.watch(key)
                else:
                    flights.pop()
            leads = tuple(flight.lead for flight in flights)
            values, error = yield Call(partial(loader, list(keys.values())), leads)
            if error is None:
                error = self._loaded_many(flights, keys, values, ttl, policy)
            if error is not None:
                for flight in flights if policy.shares(error) else ():
                    if flight.outcome is None:
                        self._landing.failed(flight, error)
                return None, error
        finally:
            for flight in flights:
                self._landing.abandon(flight)
        led = {flight.key for flight in flights}
        for key, caller_key in keys.items():
            if key not in led:
                self.read_beside(key, values.get(caller_key, MISSING))
        return values, None

    def _loaded_many(
        self,
        flights: list[Flight],
        keys: Mapping[Any, Hashable],
        values: Mapping[Any, Any],
        ttl: float | None,
        policy: LoadPolicy,
    ) -> BaseException | None:
        for flight in flights:
            caller_key = keys[flight.key]
            if caller_key in values:
                request = LoadRequest(flight.key, caller_key, flight.key, _no_loader, ttl, policy)
                _, error = self._landing.loaded(flight, request, values[caller_key])
                if error is not None:
                    return error
            else:
                self._landing.found_nothing(flight)
        return None


def _no_loader() -> Any:
    """Stand in for the loader of a value that was loaded together with others."""


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are known to be equal. They may have an ``__eq__`` of their own."""
    try:
        return one is other or (type(one) is type(other) and bool(one == other))
    except Exception:
        return False
