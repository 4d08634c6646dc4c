"""Loading many keys by one call of a loader."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from wheelcache.coherence.key_stamps import KeyStamps
from wheelcache.core.access import TTL
from wheelcache.core.contract import MISSING, Core
from wheelcache.keys import KeyProxies
from wheelcache.loading.flight_table import Flight, FlightTable
from wheelcache.loading.landing import Landing
from wheelcache.loading.policy import LoadPolicy
from wheelcache.loading.request import LoadRequest, Target
from wheelcache.loading.steps import InSteps, Steps, StepsTo, call, outcome_of


@dataclass(slots=True, eq=False)
class ManyLoads:
    """The loads of many keys of one cache. Each key that no other caller is loading gets a flight."""

    _core: Core
    _target: Target
    _stamps: KeyStamps
    _keys: KeyProxies
    _flights: FlightTable
    _landing: Landing

    def reconcile(self, key: Any, value: Any) -> None:
        """Drop the entry of ``key`` unless its value equals ``value``, which was just read from the source (MISSING if
        there was none). A flight in progress does not store its value, since either value may be the older one."""
        key = self._keys.adapt(key)
        self._flights.supersede(key)
        self._landing.drop_other(key, value)

    def load(
        self,
        callers_keys: Iterable[Any],
        read: Callable[[list[Any]], StepsTo[Mapping[Any, Any]]],
        ttl: TTL,
        policy: LoadPolicy,
    ) -> Steps:
        """Return the result of ``read(keys)``, which is called once, for all keys. Store its values, except for keys
        that other callers are loading: see ``reconcile``. This counts no look-ups."""
        seconds = self._target.seconds(ttl)
        keys = {self._target.begin(key)[0]: key for key in callers_keys}
        flights: list[Flight] = []
        try:
            now = self._core.now()
            for key in keys:
                flight = Flight(self._flights, key, now)
                flights.append(flight)
                if self._flights.claim(flight):
                    flight.watch = self._stamps.watch(key)
                else:
                    flights.pop()
            leads = tuple(flight.lead for flight in flights)
            steps = InSteps(lambda: outcome_of(read(list(keys.values()))))
            values, error = yield from call(steps, leads)
            if error is None:
                error = self._loaded(flights, keys, values, seconds, policy)
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
                self.reconcile(key, values.get(caller_key, MISSING))
        return values, None

    def _loaded(
        self,
        flights: list[Flight],
        keys: Mapping[Any, Hashable],
        values: Mapping[Any, Any],
        seconds: float | None,
        policy: LoadPolicy,
    ) -> BaseException | None:
        for flight in flights:
            caller_key = keys[flight.key]
            if caller_key in values:
                request = LoadRequest(flight.key, caller_key, flight.key, _no_loader, seconds, policy)
                _, error = self._landing.loaded(flight, request, values[caller_key])
                if error is not None:
                    return error
            else:
                self._landing.found_nothing(flight)
        return None


def _no_loader() -> Any:
    """Stand in for the loader of a value that was loaded together with others."""
