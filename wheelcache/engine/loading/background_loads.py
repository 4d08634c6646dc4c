"""Loads in the background: refreshes, for which no caller waits, and loads with a timeout."""

from __future__ import annotations

import logging
from typing import Any

from wheelcache.core.contract import Core, Removals
from wheelcache.engine.loading.background import (
    Background,
    Handed,
    MakeContext,
    made_for_load,
    stay_with_callers,
    within,
)
from wheelcache.engine.loading.loads import Loads
from wheelcache.engine.loading.policy import Receivers
from wheelcache.engine.loading.request import LoadRequest, Target, computed
from wheelcache.engine.turns import End, Turn, enter
from wheelcache.runtime.steps import Steps, StepsTo, result

logger = logging.getLogger("wheelcache")


class BackgroundLoads:
    """The background loads of one cache.

    Args:
        loads: the loads of the cache.
        context: the option ``background_context`` of the cache.
    """

    def __init__(self, core: Core, target: Target, loads: Loads, context: MakeContext | None) -> None:
        self._core = core
        self._target = target
        self._loads = loads
        self._turns, self._counts, self._backoff = loads.turns, loads.counts, loads.backoff
        self._context = context

    def start_refresh(self, request: LoadRequest, background: Background) -> StepsTo[None]:
        """Begin to load a value, unless that is in progress, or not wanted any longer, or has failed recently."""
        turn = Turn(self._turns, request.key, request.watched, request.names)
        # Until a thread is free, other callers may load the value themselves.
        turn.is_queued = True
        steps = self._run(turn, request, background, is_refresh=True)
        try:
            if not (self.may_try(request.key) and self._is_wanted(request) and self._turns.claim(turn)):
                return
            if stay_with_callers():
                self._counts.add("refreshes")
                result((yield from steps))
                return
            request.contexts = made_for_load(self._context)
            started = background.refresh(steps, turn)
            self._counts.add("refreshes" if started else "refreshes_dropped")
            if not started:
                turn.give_up()
        except BaseException:
            turn.give_up()
            raise

    def hand_over(self, turn: Turn, request: LoadRequest, deadline: float, background: Background) -> Handed:
        """Let a pool or a task load a value for which the caller will wait until ``deadline``."""
        request.contexts = made_for_load(self._context)
        turn.is_awaited = True
        # The caller computes the value no longer, so it may ask for it again after its timeout.
        turn.exit()
        handed = background.load(self._run(turn, request, background), turn, deadline)
        if handed is Handed.TAKEN:
            turn.is_handed_over = True
        elif handed is Handed.NO_ROOM:
            self._counts.add("refreshes_dropped")
        else:
            enter((turn,))
        return handed

    def may_try(self, key: Any) -> bool:
        """Return whether no load of ``key`` has failed recently."""
        return self._backoff.is_over(key, self._core.now())

    def _is_wanted(self, request: LoadRequest) -> bool:
        """Return whether the entry was neither deleted nor loaded since the caller looked."""
        times = self._core.times(request.key)
        return times is not None and times.fresh_until <= request.fresh_until

    def _run(self, turn: Turn, request: LoadRequest, background: Background, *, is_refresh: bool = False) -> Steps:
        try:
            if not self._turns.starts(turn):
                return None, None
            if is_refresh:
                if not self._is_wanted(request):
                    return None, None
                request.started = self._core.now()
            enter((turn,))
            value, error = yield from within(request.contexts, computed(request))
            if error is None:
                _, error = self._loads.outcome(turn, request, value)
            elif not (isinstance(error, Exception) or (background.blocking and not stay_with_callers())):
                # A cancellation: the loop, or the caller that runs this, ends.
                self._loads.fail(turn, request, error)
                return None, error
            if error is not None:
                self._failed(turn, request, error, is_refresh)
            return None, None
        finally:
            # Twice: the second call completes an interrupted one.
            try:
                turn.end(End.AGAIN)
            finally:
                turn.end(End.AGAIN)
                turn.exit()
                # From Python 3.12 on, the frames of the error's traceback refer to this one: they would be a cycle with
                # the error, and with the turn, which has it too.
                error = None
                del turn

    def _failed(self, turn: Turn, request: LoadRequest, error: BaseException, is_refresh: bool) -> None:
        if self._loads.is_closed:
            turn.end(End.ERROR, error)
            return
        pause = self._backoff.failed(request.key, self._core.now())
        removed: Removals = []
        if request.policy.stale.receivers is Receivers.ALL and not request.policy.fail_safe:
            # A stale value would be served as if nothing had happened, and no caller would ever see the error.
            self._core.delete(request.key, only_dead=True, removed=removed)
        # Otherwise it is raised to the caller.
        is_logged = is_refresh or request.policy.fail_safe or request.given_up
        self._loads.fail(turn, request, error, is_logged=is_logged)
        try:
            if is_logged:
                self.log_failure(request, error, pause)
        finally:
            if removed:
                self._target.announce(0, removed)

    def log_failure(self, request: LoadRequest, error: BaseException, pause: float) -> None:
        """Log an error that is not raised to the caller."""
        logger.warning(
            "Loading %r into the cache %r failed; the next refresh waits for %.1f s.",
            request.caller_key,
            self._target.name,
            pause,
            exc_info=error,
        )
