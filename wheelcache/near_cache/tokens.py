"""The tokens of tags: random strings that show when their tag was dropped.

A caller that misses a key, computes the value and sets it names the tags only at the end, so their tokens are read
after the computation. A drop may be at any point by then: the new token may be in the store although no report of it
has arrived. So the token itself contains the moment at which the drop began, before anything was written. If the
computation began earlier, its value may be outdated.

The processes of one machine share the clock of these moments. The wall clocks of two machines differ, so a token from
another machine is older than a computation if it is older by ``CLOCKS_DIFFER``, or if this process had read the token
when the computation began. Otherwise the value is not kept, and the next computation can be.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, NamedTuple

from wheelcache.runtime.clock import SystemClock, moment

MARK: Final = "wheelcache.tag."
"""The beginning of the key of a token."""

CLOCKS_DIFFER: Final = 5.0
"""Seconds by which the wall clocks of two machines differ at most."""

MOST: Final = 1024
"""The most tokens to remember. Beyond it, all are forgotten."""


def _machine() -> str:
    """Return an identifier of the processes that have one clock. Without one, each process is on its own."""
    with suppress(OSError):
        boot, clock = Path("/proc/sys/kernel/random/boot_id").read_bytes(), b""
        with suppress(OSError):
            clock = bytes(Path("/proc/self/ns/time").readlink())
        return blake2b(boot + clock, digest_size=4).hexdigest()
    return token_hex(4)


MACHINE: Final = _machine()


def first_token() -> str:
    """Return a token for a tag that has none, which drops nothing."""
    return token_hex(8)


def new_token() -> str:
    """Return a token that drops the values of all computations that have begun."""
    return f"{token_hex(8)}.{MACHINE}.{moment():x}.{int(SystemClock.time() * 1000):x}"


class Drop(NamedTuple):
    """The drop that wrote a token: its machine, and the moment and the seconds since 1970 at which it began."""

    machine: str
    began: int
    at: float


def drop_of(token: Any) -> Drop | None:
    """Return the drop that wrote ``token``; None if no drop wrote it."""
    match str(token).split("."):
        case [_, machine, began, at]:
            return Drop(machine, int(began, 16), int(at, 16) / 1000)
    return None


class TokensRead:
    """The tokens from other machines that this process has recently read, by their keys."""

    __slots__ = ("_read",)

    def __init__(self) -> None:
        self._read: dict[str, tuple[str, int]] = {}

    def note(self, tokens: Mapping[str, Any]) -> None:
        """Note that ``tokens``, by their keys, were read from the store before now."""
        for key, token in tokens.items():
            drop = drop_of(token)
            if drop is not None and drop.machine != MACHINE and self._read.get(key, ("", 0))[0] != token:
                if len(self._read) >= MOST:
                    self._read.clear()
                self._read[key] = token, moment()

    def is_older(self, key: str, token: Any, since: int) -> bool:
        """Return whether no drop that wrote ``token`` can have begun after the moment ``since``."""
        drop = drop_of(token)
        if drop is None:
            return True
        if drop.machine == MACHINE:
            return drop.began < since
        read, read_at = self._read.get(key, ("", 0))
        if read == token and read_at <= since:
            return True
        return drop.at + CLOCKS_DIFFER < SystemClock.time() - (moment() - since) / 1e9
