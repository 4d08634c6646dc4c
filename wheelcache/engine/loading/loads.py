"""Loading for one cache: the policies of ``get_or_load``, on turns.

The keys and TTLs are those of the callers: ``Cache``, ``memoize``, the backends, the near cache. A look-up that missed
comes here with a ``LoadRequest``. It immediately gets a stale value, waits for the turn of another caller, or leads
one: it looks again, runs the loader, and stores the value under the watch of the turn. If a set, a delete or a clear
has broken the watch, only the callers that joined before receive the value, and it is not stored.

A look-up counts once, when it has ended: as a hit of the core if the core finds a value, as a stale hit if a stale
value is served, otherwise as a miss.

No lock is held while a loader, a listener, a weigher or a log handler runs. Each ``finally`` here ends the turns of its
generator: an exception that arrives at any point leaves no turn without a leader, and no caller waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from inspect import isawaitable
from typing import Any, Final, cast

from wheelcache.core.access import MAX_FAST_TTL, SECONDS, TTL, Lifetime, Serialized
from wheelcache.core.contract import MISSING, Core, Record, Times
from wheelcache.engine.codec import NOT_DECODED
from wheelcache.engine.keys import KeyProxies, unwrap
from wheelcache.engine.loading.adaptive import WithPrevious, check_has_no_refresh_ahead, takes_previous
from wheelcache.engine.loading.background import BACKGROUND, Background, Handed, MakeContext, stay_with_callers
from wheelcache.engine.loading.background_loads import BackgroundLoads
from wheelcache.engine.loading.backoff import Backoff
from wheelcache.engine.loading.policy import LoadPolicy, Receivers
from wheelcache.engine.loading.request import LoadRequest, Target, computed, untagged
from wheelcache.engine.loading.results import Results
from wheelcache.engine.loading.shared_errors import error_for_waiter
from wheelcache.engine.loading.steps import (
    InSteps,
    Loader,
    Outcome,
    Steps,
    StepsTo,
    Wait,
    as_it_is,
    call,
    drive,
    drive_async,
    outcome_of,
    result,
)
from wheelcache.engine.observer import Observer
from wheelcache.engine.runtime.clock import SystemClock
from wheelcache.engine.stats import LOAD_COUNTS, Meter
from wheelcache.engine.turns import End, Is, Turn, Turns, enter, led, wait_until
from wheelcache.errors import LoadDeadlock, LoadTimeout

TAKEN: Final = object()
"""The result of ``Loads.begin`` if the caller must wait."""


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
        keys: adapts the callers' keys.
        start_jobs: called at a failed load.
        background_context: see ``Cache``.

    Attributes:
        turns: the loads in progress, and the refreshes that wait for a thread.
        counts: the counts of the loads.
    """

    def __init__(
        self,
        core: Core,
        target: Target,
        keys: KeyProxies,
        start_jobs: Callable[[], object],
        background_context: MakeContext | None,
    ) -> None:
        self._core = core
        self._target = target
        self._keys = keys
        self.turns = Turns(core, core.watch)
        self._backoff = Backoff()
        self.counts = Meter(*LOAD_COUNTS)
        self._results = Results(core, target, self.counts, self._backoff, start_jobs)
        self.finish = self._results.finish
        self.fail = self._results.fail
        self._in_background = BackgroundLoads(
            core, target, self.turns, self._results, self.counts, self._backoff, background_context
        )

    # Loads outside of turns.

    def leave_out(self, is_left_out: Callable[[Any], bool]) -> None:
        """Do not count the loads of the core's keys for which ``is_left_out`` is true: a layer makes their values."""
        self._results.is_left_out = is_left_out

    def count(self, key: Any, seconds: float, group: str | None = None, *, has_failed: bool = False) -> None:
        """Count a value of ``key``, a key of the core, that a caller computed in ``seconds`` after a miss.

        Args:
            group: the name of its group of keys; None if the key decides.
            has_failed: whether the computation raised an exception.
        """
        self._results.count(key, seconds, "load_failures" if has_failed else "loads", group)

    def compute(self, request: LoadRequest) -> Steps:
        """Return the steps to the stored form of a value that the caller computes for itself. It counts as a load."""
        if not request.is_counted:
            request.is_counted = True
            self._core.count_miss(request.key, group=request.group)
        started = self._core.now()
        value, error = yield from computed(request)
        if request.is_computed:
            self._results.computed(request.key, self._core.now() - started, error, request.group)
        return value, error

    # Requests.

    def request(
        self,
        key: Hashable,
        loader: Any,
        ttl: Any,
        policy: LoadPolicy,
        tags: tuple[str, ...] = (),
        *,
        encode: Callable[[Any], Any] | None = None,
        decode: Callable[[Any], Any] = as_it_is,
        passes_previous: bool | None = None,
        is_alone: bool = False,
    ) -> LoadRequest:
        """Return a request for ``get`` or ``load``, after a ``find`` that missed. It answers the miss of ``key``, so no
        later ``set`` by the caller is a fill.

        Args:
            loader, ttl: see ``LoadRequest``.
            encode, decode: convert a value to its stored form and back. By default, the value is stored as it is. If
                only ``decode`` is left out, ``get`` returns the stored form.
            passes_previous: whether ``loader`` receives the previous value; None if its parameters decide.
            is_alone: whether the caller computes the value for itself. Then the TTL is not checked.

        Raises:
            TypeError, ValueError: if ``ttl`` is neither a number of seconds > 0 nor None nor a function.
        """
        if callable(ttl):
            check_has_no_refresh_ahead(ttl, policy)
        elif not (ttl is None or is_alone or (type(ttl) in SECONDS and 0 < ttl < MAX_FAST_TTL)):
            ttl = self._target.seconds(ttl)
        plain, _ = self._target.adapt_and_pop_miss(key)
        if passes_previous is None:
            passes_previous = type(loader) is not InSteps and takes_previous(loader)
        if passes_previous:
            loader = WithPrevious(key, loader, _no_previous if is_alone else self.previous, decode)
        names = self._target.tag_names(plain, tags) if tags or type(plain) is not str else ()
        request = LoadRequest(plain, key, loader, ttl, policy, names, encode, decode)
        if is_alone:
            request.is_alone, request.is_at_once = True, False
        return request

    def refresh(self, request: LoadRequest, found: Any) -> Steps:
        """Return ``found``, the present value of the request's key, which is loaded again."""
        request.is_hit = True
        times = self._core.times(request.key)
        if times is not None:
            request.fresh_until = times.fresh_until
        yield from self._in_background.start_refresh(request, (yield BACKGROUND))
        return found, None

    def request_apart(
        self, key: Hashable, loader: Loader, policy: LoadPolicy, tags: tuple[str, ...] = ()
    ) -> LoadRequest:
        """Return a request whose callers share turns only with each other, not with other loads of ``key``.

        ``loader()`` returns an ``Unstored``. As in other loads, a write of ``key`` outdates its value, and
        waiters may receive the old value of ``key``.
        """
        plain = self._keys.adapt(key)
        request = LoadRequest(
            _apart(plain), key, loader, None, policy, self._target.tag_names("", tags) if tags else ()
        )
        request.watched = plain
        return request

    def led_apart(self, key: Hashable) -> Turn:
        """Return the turn of the ``request_apart`` of ``key`` that the running code leads."""
        own = _apart(self._keys.adapt(key))
        # A turn that has ended, since its event loop had stopped, is no longer there. A new one is not open either.
        turns = [turn for turn in led() if turn.turns is self.turns and turn.key == own]
        return turns[0] if turns else Turn(self.turns, own)

    def apart_in_progress(self) -> list[Any]:
        """Return the keys of the loads apart that are in progress."""
        turns = self.turns.open.copy().values() if self.turns.open else ()
        return [unwrap(turn.watched) for turn in turns if turn.key is not turn.watched]

    def supersede_apart(self, keys: Iterable[Hashable]) -> None:
        """Note in the turns of loads apart that ``keys`` will be written or deleted."""
        if self.turns.open:
            for key in keys:
                self.turns.supersede(_apart(self._keys.adapt(key)))

    def turn(self, request: LoadRequest) -> Turn:
        """Return a turn for ``begin``."""
        return Turn(self.turns, request.key, request.watched, request.names)

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

    def previous(self, key: Hashable) -> Record | None:
        """Return the entry of ``key`` with the value that a loader replaces: one that is fresh, or within its grace."""
        record = self._core.peek(self._keys.adapt(key))
        if record is None or not record.times.is_current or record.times.expires_at <= self._core.now():
            return None
        return record

    def get_stale(self, key: Hashable, grace: float) -> Any:
        """Return the old value of ``key`` during an outage of its source, or MISSING: one within ``grace`` seconds past
        its TTL, which it was stored with, or from a past epoch of trust."""
        key = self._keys.adapt(key)
        record = self._core.peek(key)
        if record is None or self._core.now() >= min(record.times.expires_at, record.times.fresh_until + grace):
            return MISSING
        self._count_stale_hit(key)
        return record.value

    def _count_stale_hit(self, key: Any) -> None:
        self.counts.add("stale_hits")
        self._core.count_stale_hit(key)

    # A look-up.

    def get(self, request: LoadRequest, found: Any = MISSING) -> Any:
        """Return the value of a key for which a ``find`` returned ``found``, decoded. If that is MISSING, and no other
        caller computes the value, this thread does. Otherwise, the value is refreshed.

        If the value of another caller cannot be decoded, this one loads it again.

        Raises:
            LoadDeadlock: if the loader needs the key that it loads, itself or through other loaders.
            LoadTimeout: if the timeout has passed and there is no stale value.
        """
        if found is not MISSING:
            return result(drive(self.refresh(request, found)))
        stored = TAKEN
        if request.is_at_once:
            turn = Turn(self.turns, request.key, request.watched, request.names)
            with turn, turn:
                try:
                    stored = self.begin(turn, request)
                    if stored is MISSING:
                        stored = self.finish(turn, request, request.complete(request.loader()))
                except BaseException as error:
                    if stored is MISSING:
                        self.fail(turn, request, error)
                    raise
        if stored is TAKEN:
            stored = result(drive(self.load(request)))
        if type(stored) is not Serialized:
            return stored
        try:
            return request.decode(stored)
        except NOT_DECODED as error:
            again = self._again(request, stored, error)
        return request.computed if again is None else self.get(again)

    async def aget(self, request: LoadRequest, found: Any = MISSING) -> Any:
        """Do the same as ``get`` in a task, and await an awaitable result of the loader."""
        if found is not MISSING:
            return result(await drive_async(self.refresh(request, found)))
        stored = TAKEN
        if request.is_at_once:
            turn = Turn(self.turns, request.key, request.watched, request.names)
            with turn, turn:
                try:
                    stored = self.begin(turn, request)
                    if stored is MISSING:
                        value = request.loader()
                        value = request.complete(await value if isawaitable(value) else value)
                        stored = self.finish(turn, request, value)
                except BaseException as error:
                    if stored is MISSING:
                        self.fail(turn, request, error)
                    raise
        if stored is TAKEN:
            stored = result(await drive_async(self.load(request)))
        if type(stored) is not Serialized:
            return stored
        try:
            return request.decode(stored)
        except NOT_DECODED as error:
            again = self._again(request, stored, error)
        return request.computed if again is None else await self.aget(again)

    def _again(self, request: LoadRequest, stored: Any, error: Exception) -> LoadRequest | None:
        """Remove a value that cannot be decoded. Return the request of another one, or None if the caller of
        ``request`` has computed the value."""
        self._target.remove_undecoded(request.key, stored, error)
        return request.again() if request.computed is MISSING else None

    def begin(self, turn: Turn, request: LoadRequest) -> Any:
        """Begin to compute the value of a request. Return MISSING if ``turn`` leads, so that the caller computes the
        value and calls ``finish`` or ``fail``; otherwise the value, if another caller has just stored it, or TAKEN, if
        the caller must wait, or leads the key itself. It then calls ``load``.

        The caller is in a ``with turn, turn``.
        """
        if not self.turns.lead(turn):
            return TAKEN
        found = self._look_again(request)
        if found is MISSING and turn.is_behind:
            return TAKEN
        if found is MISSING and not request.is_counted:
            if request.policy.is_at_once and not request.leaves_miss:
                request.is_counted = True
                if request.key is request.watched:
                    # The caller of a load apart has counted its look-up of the key.
                    self._core.count_miss(request.key, group=request.group)
            elif request.cause < 0:
                # Before the value is stored.
                request.cause = self._core.miss_cause(request.watched)
        return found

    def _look_again(self, request: LoadRequest) -> Any:
        """Look up the key, since another caller may have stored the value between the miss and the turn."""
        # Marked first, so that a look-up counts at most once if it is interrupted.
        was_counted, request.is_counted = request.is_counted, True
        found = self._core.find(request.key, MISSING)
        if found is not MISSING:
            request.is_hit = True
            return found
        request.is_counted = was_counted
        request.started = self._core.now()
        return MISSING

    def load(self, request: LoadRequest) -> Steps:
        """Return the steps of ``get``: to wait for another caller, to serve a stale value, or to load elsewhere."""
        if request.is_alone:
            return (yield from self.compute(request))
        background = yield BACKGROUND
        policy = request.policy
        outcome: Outcome | None = None
        # Before the value is stored.
        request.cause = self._core.miss_cause(request.watched)
        try:
            # With a timeout, a fresh value is preferred for that long, unless loading failed recently.
            if policy.stale.seconds and (policy.timeout is None or not self._in_background.may_try(request.key)):
                stale = self._stale(request, Receivers.ALL)
                if stale is not MISSING:
                    yield from self._in_background.start_refresh(request, background)
                    return stale, None
            deadline = None if policy.timeout is None else SystemClock.steady() + policy.timeout
            while outcome is None:
                outcome = yield from self._take_turn(request, deadline, background)
            return outcome
        finally:
            has_failed = outcome is None or outcome[1] is not None
            self.count_end(request, MISSING if outcome is None else outcome[0], has_failed=has_failed)

    def count_end(self, request: LoadRequest, value: Any, *, has_failed: bool) -> None:
        """Count a look-up that has ended as a miss, unless it was counted, or its caller counts it."""
        # A copy that is kept for the caller may still turn a failure into a hit.
        is_left = request.policy.is_for_outages if has_failed else request.leaves_miss and value is MISSING
        # The caller of a load apart has counted its look-up of the key.
        if not (request.is_counted or is_left or request.key is not request.watched):
            request.is_counted = True
            self._core.count_miss(request.watched, request.cause, group=request.group)

    def _take_turn(
        self, request: LoadRequest, deadline: float | None, background: Background
    ) -> StepsTo[Outcome | None]:
        """Lead a turn, or wait for one. Return None if the caller has to look again."""
        turn = Turn(self.turns, request.key, request.watched, request.names)
        with turn, turn:
            found = self.begin(turn, request)
            if found is TAKEN and not turn.is_behind:
                try:
                    state = self.turns.begin(turn, blocking=background.blocking, may_wait=request.may_wait)
                except LoadDeadlock as error:
                    return self._stale_instead(request, error)
                if state is Is.WAITS:
                    return (yield from self._wait(turn, request, deadline, background))
                enter((turn,))
                found = self._look_again(request)
            if turn.is_behind and (found is TAKEN or found is MISSING):
                found = yield from self._wait_for_process(turn, request, deadline, background)
                if found is MISSING and deadline is not None and deadline <= SystemClock.steady():
                    return self._timed_out(request)
            if found is not MISSING:
                return found, None
            if deadline is not None and not stay_with_callers():
                handed = self._in_background.hand_over(turn, request, deadline, background)
                if handed is Handed.TAKEN:
                    return (yield from self._wait_for_own(turn, request, deadline))
                if handed is Handed.NO_ROOM:
                    turn.end(End.AGAIN)
                    return self._timed_out(request)
            value, failure = yield from computed(request)
            if failure is not None:
                self.fail(turn, request, failure)
            else:
                value, failure = self._results.outcome(turn, request, value)
            return (value, None) if failure is None else self._stale_instead(request, failure)

    def _wait_for_process(
        self, turn: Turn, request: LoadRequest, deadline: float | None, background: Background
    ) -> StepsTo[Any]:
        """Wait for another process that computes the value. Return the value, or MISSING if the caller computes it."""
        stale = self._stale(request, Receivers.WAITERS)
        if stale is not MISSING:
            return stale
        yield from wait_for_claim(turn, wait_until(turn, deadline, blocking=background.blocking))
        return self._look_again(request)

    def _wait_for_own(self, turn: Turn, request: LoadRequest, deadline: float) -> StepsTo[Outcome | None]:
        """Wait for the turn that the caller has handed over. Return None if it has to look again."""
        yield Wait(turn.alarm, deadline)
        if turn.ended is None:
            return self._timed_out(request)
        if turn.ended is End.VALUE:
            return turn.value, None
        return self._or_stale(request, turn.value) if turn.ended is End.ERROR else None

    def _wait(
        self, turn: Turn, request: LoadRequest, deadline: float | None, background: Background
    ) -> StepsTo[Outcome | None]:
        """Wait for the turn of another caller. Return None if the caller has to look again."""
        stale = self._stale(request, Receivers.WAITERS)
        if stale is not MISSING:
            return stale, None
        if turn.is_late:
            # The key was written since the leader began, so the value may be there.
            found = self._look_again(request)
            if found is not MISSING:
                return found, None
        alarm = cast("Turn", turn.waits_on).alarm
        yield Wait(alarm, wait_until(turn, deadline, blocking=background.blocking))
        how, value = turn.result
        # Before the next steps, which may run a log handler of the site.
        turn.leave()
        if how is None:
            if deadline is not None and deadline <= SystemClock.steady():
                return self._timed_out(request)
            # The turn may never end before that of this caller.
            request.may_wait = False
        elif how is End.VALUE:
            self.counts.add("coalesced")
            return value, None
        elif how is End.ERROR and isinstance(value, Exception):
            outcome = self._or_stale(request, value)
            return outcome if outcome[1] is None else (None, error_for_waiter(value, request.caller_key))
        # Any other error (a cancellation, an exit) is about the leader, not about the value.
        return None

    # Stale values.

    def _stale(self, request: LoadRequest, receivers: Receivers) -> Any:
        """Return the stale value if the rule of the request is for such callers, which ends the look-up; otherwise
        MISSING."""
        rule = request.policy.stale
        record = stale_record(self._core, request.watched, rule.seconds) if rule.receivers is receivers else None
        if record is None:
            return MISSING
        request.fresh_until = record.times.fresh_until
        request.is_counted = request.is_hit = True
        self._count_stale_hit(request.watched)
        return record.value

    def _timed_out(self, request: LoadRequest) -> Outcome:
        request.given_up = True
        self.counts.add("load_timeouts")
        stale = self._stale(request, Receivers.ALL)
        if stale is MISSING:
            return None, LoadTimeout(request.caller_key, request.policy.timeout or 0.0)
        return stale, None

    def _or_stale(self, request: LoadRequest, error: BaseException) -> Outcome:
        """Return the stale value if loading failed and the caller may have it; otherwise the error."""
        if request.policy.fail_safe and isinstance(error, Exception):
            stale = self._stale(request, Receivers.ALL)
            if stale is not MISSING:
                return stale, None
        return None, error

    def _stale_instead(self, request: LoadRequest, error: BaseException) -> Outcome:
        """Do the same for the caller's own load, and log an error that the caller does not see."""
        outcome = self._or_stale(request, error)
        if outcome[1] is None:
            pause = self._backoff.failed(request.key, self._core.now())
            self._results.log_failure(request, error, pause)
        return outcome

    # Many keys.

    def load_many(
        self,
        callers_keys: Iterable[Any],
        read: Callable[[list[Any]], StepsTo[Mapping[Any, Any]]],
        ttl: TTL,
        policy: LoadPolicy,
    ) -> Steps:
        """Return the result of ``read(keys)``, which is called once, for all keys. Store its values, except for keys
        that other callers are loading: see ``reconcile``. This counts no look-ups."""
        seconds = self._target.seconds(ttl)
        now = self._core.now()
        requests = {}
        for caller_key in callers_keys:
            key, _ = self._target.adapt_and_pop_miss(caller_key)
            requests[key] = request = LoadRequest(key, caller_key, _no_loader, seconds, policy)
            request.started = now
        turns: list[Turn] = []
        try:
            for key in requests:
                turn = Turn(self.turns, key)
                turns.append(turn)
                if not self.turns.claim(turn):
                    turns.pop()
            keys = [request.caller_key for request in requests.values()]
            enter(turns)
            values, error = yield from call(InSteps(lambda: outcome_of(read(keys))))
            if error is None:
                error = self._loaded_many(turns, requests, values)
            if error is not None:
                for turn in turns:
                    if turn.ended is None:
                        self.fail(turn, requests[turn.key], error)
                return None, error
        finally:
            # Twice: the second call completes an interrupted one.
            try:
                _close_all(turns)
            finally:
                _close_all(turns)
        led = {turn.key for turn in turns}
        for key, request in requests.items():
            if key not in led:
                self.reconcile(request.caller_key, untagged(values.get(request.caller_key, MISSING)))
        return values, None

    def _loaded_many(
        self, turns: list[Turn], requests: Mapping[Any, LoadRequest], values: Mapping[Any, Any]
    ) -> BaseException | None:
        for turn in turns:
            request = requests[turn.key]
            if request.caller_key in values:
                _, error = self._results.outcome(turn, request, values[request.caller_key])
                if error is not None:
                    return error
            else:
                self._results.found_nothing(turn, request)
        return None

    def reconcile(self, key: Any, value: Any) -> None:
        """Drop the entry of ``key`` unless its value equals ``value``, which was just read from the source (MISSING if
        there was none). A load in progress does not store its value, since either value may be the older one."""
        key = self._keys.adapt(key)
        self.turns.supersede(key)
        self._results.drop_other(key, value)

    # Monitoring and lifecycle.

    def observe(self, observer: Observer) -> None:
        """Report the loads that end from now on to ``observer``."""
        self._results.observer = observer

    def keys_in_progress(self) -> list[Any]:
        """Return the keys that are being loaded. Deleting a pattern deletes them, too."""
        return list(self.turns.open)

    @property
    def is_idle(self) -> bool:
        """Whether no load is in progress and no refresh waits for a thread."""
        return not self.turns.open

    def forget_failures(self) -> None:
        """Forget which loads failed, since the cache is cleared: every key may be loaded again immediately."""
        self._backoff.clear()

    def after_fork_in_child(self) -> None:
        """Forget the loads and refreshes, whose callers and threads are in the parent process."""
        self.turns.after_fork_in_child()
        self.counts.count_from_zero()

    def close(self) -> None:
        """Let the loads in progress fail quietly with the error of the core's gate, which is shut for good."""
        self._in_background.is_closed = True
        self.forget_failures()


def wait_for_claim(turn: Turn, until: float | None) -> StepsTo[None]:
    """Wait until another process has ended its computation of the value, or until ``until``. The leader then looks the
    key up again."""
    alarm = None if turn.claim is None else turn.claim.wait()
    if alarm is not None:
        yield Wait(alarm, until)
    turn.stop_waiting()


def _close_all(turns: list[Turn]) -> None:
    for turn in turns:
        turn.close()


def _apart(key: Any) -> tuple[str, Any]:
    """Return the key of the turns of loads apart, for a key of the core."""
    return "load", key


def _no_previous(key: Any) -> None:
    """Find no previous value for a load that replaces none."""


def _no_loader() -> Any:
    """Stand in for the loader of a value that was loaded together with others."""
