"""Loads whose callers may wait: for another caller, for another process, or for a load in the background; and those
that return a stale value instead.

Each is written as steps: see ``steps``. Each ``finally`` here ends the turns of its generator.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import Any, cast

from wheelcache.core.contract import MISSING, Core, Record, Removals, Times
from wheelcache.engine.entry_writer import EntryWriter
from wheelcache.engine.loading.background import (
    BACKGROUND,
    Background,
    Handed,
    made_for_load,
    stay_with_callers,
    within,
)
from wheelcache.engine.loading.failures import error_for_waiter
from wheelcache.engine.loading.loads import TAKEN, Loads
from wheelcache.engine.loading.request import LoadRequest, Receivers, computed
from wheelcache.engine.turns import End, Is, Turn, enter, wait_until
from wheelcache.errors import LoadDeadlock, LoadTimeout
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.steps import BLOCKS, Outcome, Steps, StepsTo, Wait, result

logger = logging.getLogger("wheelcache")


class WaitingLoads:
    """The loads of one cache in steps.

    Args:
        loads: the loads of the cache, whose ``load`` and ``refresh`` are those of this object.
        writer: see ``Loads``.
    """

    def __init__(self, core: Core, loads: Loads, writer: EntryWriter) -> None:
        self._core = core
        self._loads = loads
        self._turns, self._counts, self._backoff = loads.turns, loads.counts, loads.backoff
        self._writer = writer

    def load(self, request: LoadRequest) -> Steps:
        """Return the steps of ``get``: to wait for another caller, to serve a stale value, or to load elsewhere."""
        if request.is_alone:
            return (yield from self._loads.compute(request))
        policy = request.policy
        outcome: Outcome | None = None
        # Before the value is stored.
        request.cause = self._core.miss_cause(request.watched)
        try:
            stale = self._stale(request, self._grace_before(request)) if policy.kept else MISSING
            if stale is not MISSING:
                yield from self._start_refresh(request)
                return stale, None
            deadline = None if policy.timeout is None else SystemClock.steady() + policy.timeout
            while outcome is None:
                outcome = yield from self._take_turn(request, deadline)
            return outcome
        finally:
            has_failed = outcome is None or outcome[1] is not None
            self._loads.count_end(request, MISSING if outcome is None else outcome[0], has_failed=has_failed)

    def refresh(self, request: LoadRequest, found: Any) -> Steps:
        """Return ``found``, the present value of the request's key, which is loaded again."""
        request.is_hit = True
        times = self._core.times(request.key)
        if times is not None:
            request.fresh_until = times.fresh_until
        yield from self._start_refresh(request)
        return found, None

    def _take_turn(self, request: LoadRequest, deadline: float | None) -> StepsTo[Outcome | None]:
        """Lead a turn, or wait for one. Return None if the caller has to look again."""
        turn = Turn(self._turns, request.key, request.watched, request.names)
        with turn, turn:
            found = self._loads.begin(turn, request)
            if found is TAKEN and not turn.is_behind:
                blocks = yield BLOCKS
                try:
                    state = self._turns.begin(turn, blocking=blocks, may_wait=request.may_wait)
                except LoadDeadlock as error:
                    return self._stale_instead(request, error)
                if state is Is.WAITS:
                    return (yield from self._wait(turn, request, deadline))
                enter((turn,))
                found = self._loads.look_again(request)
            if turn.is_behind and (found is TAKEN or found is MISSING):
                found = yield from self._wait_for_process(turn, request, deadline)
                if found is MISSING and deadline is not None and deadline <= SystemClock.steady():
                    return self._timed_out(request)
            if found is not MISSING:
                return found, None
            if deadline is not None and not stay_with_callers():
                handed = self._hand_over(turn, request, deadline, (yield BACKGROUND))
                if handed is Handed.TAKEN:
                    return (yield from self._wait_for_own(turn, request, deadline))
                if handed is Handed.NO_ROOM:
                    turn.end(End.AGAIN)
                    return self._timed_out(request)
            value, failure = yield from computed(request)
            if failure is not None:
                self._loads.fail(turn, request, failure)
            else:
                value, failure = self._loads.outcome(turn, request, value)
            return (value, None) if failure is None else self._stale_instead(request, failure)

    def _wait_for_process(self, turn: Turn, request: LoadRequest, deadline: float | None) -> StepsTo[Any]:
        """Wait for another process that computes the value. Return the value, or MISSING if the caller computes it."""
        stale = self._stale(request, request.policy.grace_for(Receivers.WAITERS))
        if stale is not MISSING:
            return stale
        yield from wait_for_claim(turn, wait_until(turn, deadline, blocking=(yield BLOCKS)))
        return self._loads.look_again(request)

    def _wait_for_own(self, turn: Turn, request: LoadRequest, deadline: float) -> StepsTo[Outcome | None]:
        """Wait for the turn that the caller has handed over. Return None if it has to look again."""
        yield Wait(turn.alarm, deadline)
        if turn.ended is None:
            return self._timed_out(request)
        if turn.ended is End.VALUE:
            return turn.value, None
        return self._or_stale(request, turn.value) if turn.ended is End.ERROR else None

    def _wait(self, turn: Turn, request: LoadRequest, deadline: float | None) -> StepsTo[Outcome | None]:
        """Wait for the turn of another caller. Return None if the caller has to look again."""
        stale = self._stale(request, request.policy.grace_for(Receivers.WAITERS))
        if stale is not MISSING:
            return stale, None
        if turn.is_late:
            # The key was written since the leader began, so the value may be there.
            found = self._loads.look_again(request)
            if found is not MISSING:
                return found, None
        alarm = cast("Turn", turn.waits_on).alarm
        yield Wait(alarm, wait_until(turn, deadline, blocking=(yield BLOCKS)))
        how, value = turn.result
        # Before the next steps, which may run a log handler of the site.
        turn.leave()
        if how is None:
            if deadline is not None and deadline <= SystemClock.steady():
                return self._timed_out(request)
            # The turn may never end before that of this caller.
            request.may_wait = False
        elif how is End.VALUE:
            self._counts.add("coalesced")
            return value, None
        elif how is End.ERROR and isinstance(value, Exception):
            outcome = self._or_stale(request, value)
            return outcome if outcome[1] is None else (None, error_for_waiter(value, request.caller_key))
        # Any other error (a cancellation, an exit) is about the leader, not about the value.
        return None

    # In the background.

    def _start_refresh(self, request: LoadRequest) -> StepsTo[None]:
        """Begin to load a value, unless that is in progress, or not wanted any longer, or has failed recently."""
        background = yield BACKGROUND
        turn = Turn(self._turns, request.key, request.watched, request.names)
        # Until a thread is free, other callers may load the value themselves.
        turn.is_queued = True
        steps = self._run(turn, request, background, is_refresh=True)
        try:
            if not (self._may_try(request.key) and self._is_wanted(request) and self._turns.claim(turn)):
                return
            if stay_with_callers():
                self._counts.add("refreshes")
                result((yield from steps))
                return
            request.contexts = made_for_load()
            started = background.refresh(steps, turn)
            self._counts.add("refreshes" if started else "refreshes_dropped")
            if not started:
                turn.give_up()
        except BaseException:
            turn.give_up()
            raise

    def _hand_over(self, turn: Turn, request: LoadRequest, deadline: float, background: Background) -> Handed:
        """Let a pool or a task load a value for which the caller will wait until ``deadline``."""
        request.contexts = made_for_load()
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

    def _may_try(self, key: Any) -> bool:
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
        now, policy = self._core.now(), request.policy
        pause = self._backoff.failed(request.key, now)
        removed: Removals = []
        times = self._core.times(request.key) if policy.grace_for(Receivers.ALL) else None
        if times is not None and times.fresh_until + policy.fail_safe <= now:
            # A stale value would be served as if nothing had happened, and no caller would ever see the error.
            self._core.delete(request.key, only_dead=True, removed=removed)
        # Otherwise it is raised to the caller.
        is_logged = is_refresh or policy.fail_safe > 0 or request.given_up
        self._loads.fail(turn, request, error, is_logged=is_logged)
        try:
            if is_logged:
                self._log_failure(request, error, pause)
        finally:
            if removed:
                self._writer.announce(0, removed)

    def _log_failure(self, request: LoadRequest, error: BaseException, pause: float) -> None:
        """Log an error that is not raised to the caller."""
        logger.warning(
            "Loading %r into the cache %r failed; the next refresh waits for %.1f s.",
            request.caller_key,
            self._writer.name,
            pause,
            exc_info=error,
        )

    # Stale values.

    def _grace_before(self, request: LoadRequest) -> float:
        """Return the seconds past its TTL for which a caller receives the old value before it tries to load."""
        policy = request.policy
        if not self._may_try(request.key):
            return self._grace_without_load(request)
        # With a timeout, a fresh value is preferred for that long.
        return policy.grace_for(Receivers.ALL) if policy.timeout is None else 0.0

    def _grace_without_load(self, request: LoadRequest) -> float:
        """Return the seconds past its TTL for which the old value is returned if loading failed or takes too long."""
        return max(request.policy.grace_for(Receivers.ALL), request.policy.fail_safe)

    def _stale(self, request: LoadRequest, grace: float) -> Any:
        """Return the stale value, which ends the look-up; MISSING if there is none within ``grace`` seconds past its
        TTL."""
        record = stale_record(self._core, request.watched, grace) if grace else None
        if record is None:
            return MISSING
        request.fresh_until = record.times.fresh_until
        request.is_counted = request.is_hit = True
        self._loads.count_stale_hit(request.watched)
        return record.value

    def _timed_out(self, request: LoadRequest) -> Outcome:
        request.given_up = True
        self._counts.add("load_timeouts")
        stale = self._stale(request, self._grace_without_load(request))
        if stale is MISSING:
            return None, LoadTimeout(request.caller_key, request.policy.timeout or 0.0)
        return stale, None

    def _or_stale(self, request: LoadRequest, error: BaseException) -> Outcome:
        """Return the stale value if loading failed and the caller may have it; otherwise the error."""
        if isinstance(error, Exception):
            stale = self._stale(request, request.policy.fail_safe)
            if stale is not MISSING:
                return stale, None
        return None, error

    def _stale_instead(self, request: LoadRequest, error: BaseException) -> Outcome:
        """Do the same for the caller's own load, and log an error that the caller does not see."""
        outcome = self._or_stale(request, error)
        if outcome[1] is None:
            pause = self._backoff.failed(request.key, self._core.now())
            self._log_failure(request, error, pause)
        return outcome


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


def wait_for_claim(turn: Turn, until: float | None) -> StepsTo[None]:
    """Wait until another process has ended its computation of the value, or until ``until``. The leader then looks the
    key up again."""
    alarm = None if turn.claim is None else turn.claim.wait()
    if alarm is not None:
        yield Wait(alarm, until)
    turn.stop_waiting()
