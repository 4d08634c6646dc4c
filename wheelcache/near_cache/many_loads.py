"""Loads of many keys by one call of the store, during loads of single keys by other callers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from wheelcache.core.contract import MISSING
from wheelcache.engine.calls import Engine
from wheelcache.engine.loading.request import LoadPolicy, LoadRequest, untagged
from wheelcache.engine.turns import End, Turn, enter
from wheelcache.runtime.steps import StepsTo


def load_many(
    engine: Engine,
    keys: Iterable[Any],
    read: Callable[[list[Any]], StepsTo[Mapping[Any, Any]]],
    ttl: float | None,
    policy: LoadPolicy,
) -> StepsTo[Mapping[Any, Any]]:
    """Return the result of ``read(keys)``, which is called once, for all keys. Store its values, except for keys that
    other callers are loading: see ``Loads.reconcile``. This counts no look-ups."""
    engine.open()
    loads, misses, now = engine.loads(), engine.misses(), engine.now()
    requests = {}
    for caller_key in keys:
        key = engine.adapt(caller_key)
        misses.pop_miss(key)
        requests[key] = request = LoadRequest(key, caller_key, _no_loader, ttl, policy)
        request.started = now
    turns: list[Turn] = []
    try:
        for key in requests:
            turn = Turn(loads.turns, key)
            turns.append(turn)
            if not loads.turns.claim(turn):
                turns.pop()
        enter(turns)
        try:
            values = yield from read([request.caller_key for request in requests.values()])
        except Exception as error:
            for turn in turns:
                loads.fail(turn, requests[turn.key], error)
            raise
        for turn in turns:
            request = requests[turn.key]
            if request.caller_key in values:
                loads.finish(turn, request, values[request.caller_key])
            else:
                turn.end(End.AGAIN)
    finally:
        # Twice: the second call completes an interrupted one.
        try:
            _close_all(turns)
        finally:
            _close_all(turns)
    led = {turn.key for turn in turns}
    for key, request in requests.items():
        if key not in led:
            loads.reconcile(request.caller_key, untagged(values.get(request.caller_key, MISSING)))
    return values


def _close_all(turns: list[Turn]) -> None:
    for turn in turns:
        turn.close()


def _no_loader() -> Any:
    """Stand in for the loader of a value that was loaded together with others."""
