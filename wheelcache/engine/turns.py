"""Turns: of the callers that need the value of a key, one has the turn to compute it, and the others wait for its end.

This is a state machine without I/O, which knows neither loaders nor requests. A caller makes a ``Turn`` and passes it
to ``Turns.begin``. After that, the turn LEADS, or it WAITS for the turn of another caller, or it is ALONE, and its
caller computes the value for itself. A leader looks the key up again, since another turn may have ended just before its
own began. It calls ``end`` once, with the value, with an error, or with the request to look again. If it is cancelled
or interrupted, its ``close`` ends the turn with AGAIN: the waiters look again, and one of them leads. A waiter waits
for the alarm of ``waits_on``, and then reads ``result``.

The idea is that of Go's ``golang.org/x/sync/singleflight``. The differences:

**No outdated value.** ``watch`` is the core's ``Watch``, the only record of the moment at which the computation began.
Writes break it, ``watch.trust`` shows a lost connection to a store, and ``watch.since`` dropped tags.
``core.fill`` checks all three in the step that stores the value. ``is_outdated`` asks the same question for a
value that is stored elsewhere. A turn can be joined only after its watch began, and whether a waiter is *late*, because
it came after a write, is decided when it joins. A late waiter waits too, so that no two computations run at the same
time, but it receives no value: it looks again.

**No wait forever.** Code that leads turns and has to wait for another one publishes this before it looks for a cycle.
Of the callers that close a cycle, at least one therefore finds it, without a lock over all caches. A thread that waits
although an event loop runs in it may block the very task that it waits for: see ``wait_until``. All other waits end
with the turn that they are for. Each turn ends: by its leader, by ``until``, or, if the leader was a task of an event
loop that has stopped, by the next caller.

**Processes.** If processes share the values, a leader has a *claim* on its key, so that one process computes the value,
or is *behind* the process that has it. Such a leader waits for the claim, for its own waiters as well, and looks the
key up again. No process knows for which turns another one waits. Therefore, a turn that is behind is waited for by code
with another turn for NESTED_WAIT at most, whether that code leads the turn or joined it.

**Asynchronous exceptions.** A time limit or Ctrl-C may interrupt any of these calls, also ``__exit__`` on entry.
Therefore a caller writes ``with turn, turn:``, which closes the turn twice.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable, Sequence
from contextvars import ContextVar, Token
from enum import Enum
from math import inf
from typing import Any, Final, Protocol, cast

from wheelcache.core.contract import MISSING, Core, Watch
from wheelcache.engine.keys import unwrap
from wheelcache.errors import LoadDeadlock
from wheelcache.runtime import threads
from wheelcache.runtime.alarm import Alarm
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.shared_objects import WeakRegistry

BLOCKED_LOOP: Final = 30.0
"""The most seconds for which a thread waits while an event loop runs in it. It then computes the value alone."""

NESTED_WAIT: Final = 2.0
"""The most seconds for which code with a turn waits for another process, which may wait for that turn."""


class Is(Enum):
    """The state of a turn, from the view of its caller."""

    NEW = "not begun, or queued"
    LEADS = "the caller computes the value; others may wait for it"
    WAITS = "the caller waits for another turn"
    ALONE = "the caller computes the value for itself"


class End(Enum):
    """The ways in which a turn ends."""

    VALUE = "the waiters receive the value"
    ERROR = "the waiters raise the error"
    AGAIN = "the waiters look again, and one of them leads"
    EACH = "the waiters look again, and none of them waits again"


class Claim(Protocol):
    """The right of one process of the machine to compute a value."""

    def take(self) -> bool:
        """Take the claim, unless another process has it. Return whether it is there."""

    def wait(self) -> Alarm | None:
        """Begin to wait for the claim. Return an alarm that is set when the claim is there, or was released; None if no
        wait is possible."""

    def release(self) -> None:
        """Give the claim back, or stop waiting for it."""


Claims = Callable[[Any], Claim]
"""Returns a new claim on the value that a key names. It is not taken yet."""


class Turn:
    """A caller's turn on one key.

    Args:
        key: the key of the turn.
        watched: the key whose writes outdate the value; by default ``key``.
        names: the tags of the value, as far as they are known, by their names in the core.
        until: the time on the clock of ``turns`` at which the turn ends by itself.

    Attributes:
        is_of_code: whether the running code computes the value until it calls ``end``, so that it must not wait for
            itself. Otherwise, the turn belongs to a scope: see ``enter_scope``.
        watch: the core's record of the moment at which the computation began; None until then.
        ended: how the turn ended; None before.
        value: the value or the error for the waiters.
        loader_returned: whether the loader has returned. Code that it left running is no longer part of the turn.
        is_queued: whether the computation waits for a free thread. Any other caller may then lead instead.
        is_joined: whether another caller has waited for this turn.
        is_awaited: whether the caller waits for its own turn, which another thread or task runs.
        is_handed_over: whether that thread or task ends the turn, and ``close`` by the caller does not.
        is_superseded: whether the source was read by another caller since, so that the value is not stored.
        waits_on: the turn that this one waits for.
        is_late: whether this turn began to wait after a write of the key.
        blocked_on: for each waiting turn of the leading code, the turn that it waits for.
        loop, thread: the event loop or the thread that the computation needs; None and 0 if it needs none.
        claim: the claim on the key among all processes; None if they share none.
        is_behind: whether another process has the claim, for which the leader may wait before it computes the value.
        token: resets the turns that the running code leads to those before ``enter``.
    """

    # The values of the class: most turns have no waiters, and change few of them.
    is_of_code = True
    state = Is.NEW
    watch: Watch | None = None
    ended: End | None = None
    value: Any = None
    loader_returned = False
    is_queued = False
    is_joined = False
    is_awaited = False
    is_handed_over = False
    is_superseded = False
    waits_on: Turn | None = None
    is_late = False
    loop: asyncio.AbstractEventLoop | None = None
    thread = 0
    claim: Claim | None = None
    is_behind = False
    token: Token[tuple[Turn, ...]] | None = None
    _alarm: Alarm | None = None
    _waiting_code: tuple[Turn, ...] = ()
    _names_before: tuple[str, ...] = ()

    def __init__(
        self,
        turns: Turns,
        key: Hashable,
        watched: Hashable = MISSING,
        names: tuple[str, ...] = (),
        until: float = inf,
    ) -> None:
        self.turns = turns
        self.key = key
        self.watched = key if watched is MISSING else watched
        self.names = names
        self.until = until
        self.blocked_on: dict[Turn, Turn] = {}
        if self.is_of_code:
            # As in ``take_back``.
            self.loop = loop = asyncio._get_running_loop()
            if loop is None:
                self.thread = threading.get_ident()

    def __repr__(self) -> str:
        # Without the value, which may be a secret.
        return f"<{type(self).__name__} on {unwrap(self.key)!r}: {self.state.name}>"

    # For the leader.

    def is_outdated(self) -> bool:
        """Return whether any process has written the key, or dropped a tag, since the computation began."""
        if self.is_superseded:
            return True
        # Without a watch, the computation has not begun.
        return self.watch is not None and self.turns.is_outdated(self.watch, self.names)

    def is_late_to_join(self) -> bool:
        """Return whether a caller that joins now may be newer than the value."""
        return self.is_outdated()

    def hand_over(self) -> None:
        """Let another thread compute the value, which then needs neither this thread nor its event loop."""
        self.loop, self.thread = None, 0

    def take_back(self) -> None:
        """Let the running code compute the value."""
        self.loop = loop = asyncio._get_running_loop()
        self.thread = threading.get_ident() if loop is None else 0

    def end(self, how: End, value: Any = None) -> bool:
        """End the turn, unless it has ended. Return whether this call did. A second call completes an interrupted one.

        Without waiters, ``value`` is not kept: an error, its traceback and the turn would be a cycle.
        """
        turns = self.turns
        # No caller joins during this.
        with turns.lock:
            is_first = self.ended is None
            if is_first:
                self.value = value if self.is_joined or self.is_awaited else None
                self.ended = how
            self.loader_returned = True
            if self.watch is not None:
                self.watch.close()
            if not self.is_of_code:
                self.leave_scope()
            if self.claim is not None:
                self.claim.release()
            if self._alarm is not None:
                self._alarm.set()
            # Last: if this is interrupted before, the next caller finds the turn, and ends it again.
            if turns.open.get(self.key) is self:
                turns.open.pop(self.key, None)
        return is_first

    def withdraw(self) -> bool:
        """End the turn if it is still queued. Return whether it was."""
        with self.turns.lock:
            return self.is_queued and self.end(End.AGAIN)

    def exit(self) -> None:
        """Undo ``enter``. Until then, the context keeps the turn in memory."""
        token, self.token = self.token, None
        if token is not None:
            try:  # noqa: SIM105  # a load would take 0.4 us longer
                _led.reset(token)
            except ValueError:
                # A coroutine that is closed from outside ends in another context than it began in.
                pass

    def stop_waiting(self) -> None:
        """End the wait for another process, with the claim or without it. The computation begins now."""
        if self.claim is not None and not self.claim.take():
            self.claim.release()
        self.is_behind = False
        if self.ended is None:
            if self.watch is not None:
                self.watch.close()
            self.watch = self.turns.new_watch(self.watched)

    def give_up(self) -> None:
        """End the turn without a value."""
        self.end(End.AGAIN)

    # For a turn of a scope.

    def enter_scope(self) -> None:
        """Let the scope end the turn at its own end."""

    def leave_scope(self) -> None:
        """Undo ``enter_scope``."""

    # For a waiter.

    @property
    def alarm(self) -> Alarm:
        """The alarm that is set at the end of the turn. It is made for the first waiter."""
        if self._alarm is None:
            with self.turns.lock:
                if self._alarm is None:
                    alarm = Alarm()
                    if self.ended is not None:
                        alarm.set()
                    self._alarm = alarm
        return self._alarm

    @property
    def result(self) -> tuple[End | None, Any]:
        """How the turn that this one waits for has ended, None before, and its value or error, if it is for this
        waiter. To be read before ``leave``."""
        other = cast("Turn", self.waits_on)
        if other.ended is End.VALUE and (self.is_late or (other.names != self._names_before and other.is_outdated())):
            # In the latter case, one of the tags that the leader learned may have been dropped before this caller came.
            return End.AGAIN, None
        return other.ended, other.value

    def leave(self) -> None:
        """Wait no longer. Do nothing at a second call."""
        for each in self._waiting_code:
            each.blocked_on.pop(self, None)
        self.waits_on = None

    __enter__ = staticmethod(bool)
    """Begins a block that leads or waits: ``with turn, turn:``. It calls ``close`` twice, since an asynchronous
    exception may arrive on entry of the first call. There is nothing to do before, and C code does that fastest."""

    def close(self, *error: object) -> None:
        """End everything that an interrupted caller has left."""
        if not self.is_handed_over:
            # Also of a turn that is ALONE, which may still be in the context.
            self.loader_returned = True
            if self.turns.open.get(self.key) is self:
                self.end(End.AGAIN)
        if self.waits_on is not None:
            self.leave()
        if self.token is not None:
            self.exit()

    __exit__ = close


class Turns:
    """The turns on the keys of one cache, or of one part of it. At most one turn per key is open.

    Args:
        core: the core, whose watches the turns use.
        watch: begins a watch on a key.
        clock: returns seconds, for ``until``; frozen time does not affect it.

    Attributes:
        claims: the claims of a cache that processes share; None if each has its own.
        lock: held for dict operations and comparisons only. Re-entrant, since the garbage collector may at any point
            run a finalizer that begins a turn.
        open: the open turns by key.
    """

    def __init__(
        self,
        core: Core,
        watch: Callable[[Any], Watch],
        clock: Callable[[], float] = SystemClock.steady,
    ) -> None:
        self.clock = clock
        self._core = core
        self.claims: Claims | None = None
        self.new_watch = watch
        self._forget()
        _tables.add(self)

    def _forget(self) -> None:
        self.lock = threading.RLock()
        self.open: dict[Hashable, Turn] = {}

    def after_fork_in_child(self) -> None:
        """Forget all turns, whose leaders are in the parent process."""
        self._forget()

    # Beginning.

    def begin(self, turn: Turn, *, blocking: bool = True, may_wait: bool = True) -> Is:
        """Lead, wait for the open turn of the key, or stay alone. Return the state of ``turn``.

        The caller is in a ``with turn, turn``. A leader looks the key up again.

        Args:
            blocking: whether the caller's thread waits, and with it any event loop that runs in it.
            may_wait: False if the caller must not wait.

        Raises:
            LoadDeadlock: if the open turn waits for a turn that the running code leads.
        """
        leading = led() if turn.is_of_code else ()
        if _is_led(turn, leading):
            raise LoadDeadlock(unwrap(turn.key))
        while True:
            other = self.open_turn_after_cleanup(turn.key)
            if other is None:
                if self.claim(turn):
                    return Is.LEADS
            elif other.is_queued and other.withdraw():
                # No caller waits for a free thread. The key is free now.
                pass
            elif not may_wait or _is_in_step(self._core):
                turn.state = Is.ALONE
                return Is.ALONE
            elif self._join(turn, other, leading, blocking=blocking):
                return turn.state

    def lead(self, turn: Turn) -> bool:
        """Lead if no turn of the key is open, and let the running code compute the value. Return whether the turn
        leads; otherwise ``begin`` decides."""
        leading = _led.get()
        if leading:
            leading = led()
            if _is_led(turn, leading):
                return False
        if not self.claim(turn):
            return False
        turn.token = _led.set((*leading, turn))
        return True

    def claim(self, turn: Turn) -> bool:
        """Lead, or queue a turn that ``is_queued``, if no turn of the key is open. Return whether it was done."""
        if turn.key in self.open and self.open_turn_after_cleanup(turn.key) is not None:
            return False
        if not turn.is_queued:
            # Before other callers see the turn: each of them must notice a write that came before it joined.
            turn.watch = self.new_watch(turn.watched)
            turn.state = Is.LEADS
            # Until the claim is taken.
            turn.is_behind = self.claims is not None
        # One call of C code: a finalizer that the garbage collector runs cannot come between the check and the change.
        if self.open.setdefault(turn.key, turn) is turn:
            if not turn.is_of_code:
                turn.enter_scope()
            if self.claims is not None and not turn.is_queued:
                self._take_claim(self.claims, turn)
            return True
        turn.state = Is.NEW
        turn.watch = None
        turn.is_behind = False
        return False

    def _take_claim(self, claims: Claims, turn: Turn) -> None:
        # A lease and a load are two computations.
        turn.claim = claims((type(turn).__name__, turn.key))
        turn.is_behind = not turn.claim.take()

    def _join(self, turn: Turn, other: Turn, leading: tuple[Turn, ...], *, blocking: bool) -> bool:
        """Wait for ``other``, or stay alone if it may need this thread. Return False if it has ended meanwhile."""
        turn._waiting_code, turn.waits_on = leading, other
        for each in leading:
            each.blocked_on[turn] = other
        needed = _everything_needed_by(other)
        if not needed.isdisjoint(leading):
            raise LoadDeadlock(unwrap(other.key))
        if blocking and _needs_this_thread(needed):
            turn.leave()
            turn.state = Is.ALONE
            return True
        with self.lock:
            # A turn whose end was interrupted is still open, and has kept no value.
            if self.open.get(turn.key) is other and other.ended is None:
                other.is_joined = True
                turn._names_before = other.names
                turn.is_late = other.is_late_to_join()
                turn.state = Is.WAITS
                return True
        turn.leave()
        return False

    def starts(self, turn: Turn) -> bool:
        """Let the running code compute the value of a turn that was queued or handed over. Return False if the turn has
        ended: the caller that handed it over was interrupted, or another one leads instead of a queued turn."""
        was_queued = turn.is_queued
        # Without the lock of the turns: this acquires that of the core, inside of which a finalizer may end a turn.
        watch = self.new_watch(turn.watched) if was_queued else turn.watch
        with self.lock:
            if turn.ended is not None:
                return False
            if was_queued:
                turn.watch = watch
                turn.state = Is.LEADS
                turn.is_behind = self.claims is not None
                turn.is_queued = False
            turn.take_back()
        if was_queued and self.claims is not None:
            # Only now: a turn that has ended would give up the claim of the caller that leads instead.
            self._take_claim(self.claims, turn)
            if turn.is_behind:
                # Another process refreshes the value.
                turn.end(End.AGAIN)
                return False
        return True

    # The open turns.

    def open_turn_after_cleanup(self, key: Hashable) -> Turn | None:
        """Return the open turn of a key, after ending one that nobody else ends."""
        turn = self.open.get(key)
        if turn is None:
            return None
        if turn.watch is not None and turn.watch.value is not MISSING:
            # Another thread has set the key, and has not announced it yet.
            turn.end(End.VALUE, turn.watch.value)
        elif (
            # A turn that has ended is still open if its leader was interrupted, or has not finished.
            turn.ended is not None
            or (turn.loop is not None and not turn.loop.is_running())
            or (turn.until != inf and turn.until <= self.clock())
        ):
            turn.give_up()
        else:
            return turn
        return self.open.get(key)

    def supersede(self, key: Hashable) -> None:
        """Keep the value of the turn in progress for ``key`` from being stored, since the source was read again."""
        with self.lock:
            turn = self.open.get(key)
            if turn is not None and turn.watch is not None:
                # In this order: the leader checks the first before it stores, and the core checks the second.
                turn.is_superseded = True
                turn.watch.broken = True

    def is_outdated(self, watch: Watch, names: tuple[str, ...]) -> bool:
        """Return whether a value with the tags ``names``, whose computation began with ``watch``, is outdated."""
        return (
            watch.broken
            or self._core.trust != watch.trust
            or (names != () and self._core.dropped_since(names, watch.since))
        )


_tables: Final[WeakRegistry[Turns]] = WeakRegistry()


def _is_in_step(core: Core) -> bool:
    """Return whether the garbage collector runs this code during a step of the core or of any table. The turns of other
    threads may wait for the end of that step."""
    return core.in_step or any(turns.lock._is_owned() for turns in _tables)  # type: ignore[attr-defined]


def _everything_needed_by(turn: Turn) -> set[Turn]:
    needed, todo = {turn}, [turn]
    while todo:
        # A copy, which is one call of C code: other threads change the dict.
        new = set(todo.pop().blocked_on.copy().values()) - needed
        needed |= new
        todo.extend(new)
    return needed


def _needs_this_thread(needed: set[Turn]) -> bool:
    me, loop = threading.get_ident(), asyncio._get_running_loop()
    return any(each.thread == me or (loop is not None and each.loop is loop) for each in needed)


def wait_until(turn: Turn, deadline: float | None, *, blocking: bool) -> float | None:
    """Return ``deadline``, or an earlier one if the wait of ``turn`` may be one for itself. Both are on the system's
    clock.

    If a thread blocks an event loop, a task of that loop may be needed to end the turn that the thread waits for. If
    the running code leads another turn, a process that it waits for, itself or by another turn, may wait for that one.
    There is no cheap way to know either.
    """
    latest = inf
    if (turn.waits_on or turn).is_behind and any(each is not turn for each in led()):
        latest = NESTED_WAIT
    elif blocking and asyncio._get_running_loop() is not None:
        latest = BLOCKED_LOOP
    if latest == inf:
        return deadline
    return min(inf if deadline is None else deadline, SystemClock.steady() + latest)


# The running code.

_led: ContextVar[tuple[Turn, ...]] = ContextVar("wheelcache_turns", default=())


def led() -> tuple[Turn, ...]:
    """Return the turns that the running code leads. Tasks and ``asyncio.to_thread`` inherit them."""
    turns = _led.get()
    return tuple([turn for turn in turns if not turn.loader_returned]) if turns else turns


def _is_led(turn: Turn, leading: tuple[Turn, ...]) -> bool:
    return any(each.turns is turn.turns and each.key == turn.key for each in leading)


def on_its_own() -> None:
    """Detach the code that runs in this context from here on from every turn."""
    _led.set(())


threads.resetters.append(on_its_own)


def enter(turns: Sequence[Turn]) -> None:
    """Let the running code compute the values of ``turns``, until they end. ``Turn.exit`` undoes this."""
    if turns:
        turns[0].token = _led.set((*led(), *turns))
