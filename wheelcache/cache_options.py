"""The options of a cache, checked. Their checks and defaults are in ``option_table``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypedDict

from wheelcache import options
from wheelcache.coherence.shared_stamps import Stamps
from wheelcache.option_table import ENGINE
from wheelcache.runtime.clock import Clock
from wheelcache.writing.entry_writer import Weigher
from wheelcache.writing.removal_listener import Listener

_DEFAULTS: Final[Mapping[str, Any]] = {name: option.default for name, option in ENGINE.items()}


class CacheArguments(TypedDict, total=False):
    """The arguments of ``Cache`` beside its name, for type checkers: see ``CacheOptions``."""

    max_entries: int | None
    max_weight: int | None
    weigher: Weigher | None
    ttl: float | None
    jitter: float
    interval: float
    slots: int
    log_interval: float | None
    sample_interval: float | None
    figures_dir: Path | None
    snapshot_dir: Path | None
    snapshot_interval: float
    snapshot_key: str | bytes | None
    on_removal: Listener | None
    stamps: Stamps | None
    clock: Clock


# Without slots: the class has the defaults, which are those of the arguments of ``Cache``.
@dataclass(frozen=True)
class CacheOptions:
    """What ``Cache`` takes.

    Attributes:
        name: what the cache is called in logs.
        max_entries: how many entries it holds at most; None for no bound. The least recently used leave first.
        max_weight: the most that the weights of all entries may add up to; needs ``weigher``.
        weigher: ``weigher(key, value)``, the weight of an entry, an int >= 0.
        ttl: seconds until an entry expires unless ``set`` says otherwise; None for never.
        jitter: every TTL is shortened by a random fraction of at most ``jitter``, and by at most 60 seconds, so that
            what is set together does not expire together. ``add`` and ``touch`` keep theirs exactly.
        interval: seconds a tick of the wheel: how soon an expired entry leaves memory. Reads are exact whatever it is.
        slots: ticks that the wheel's finest level spans.
        log_interval: seconds between lines on the logger ``wheelcache.stats``; None for none.
        sample_interval: seconds between samples of ``stats()``, of which the last 360 are kept; None for none.
        figures_dir: where to publish the figures of this process every three seconds, and see those of the others: see
            ``figures_directory``. None for not.
        snapshot_dir: where to keep the entries from one process to the next: see ``autosave``. They are loaded
            when the cache is first used: by whatever asks for an entry, writes one, or counts them (``stats``), but
            not by ``len`` or ``clear``, nor by decorating a function. None for not.
        snapshot_interval: seconds between two saves of them.
        snapshot_key: what these files are signed with; None for no signature.
        on_removal: ``on_removal(key, value, cause)`` for every entry that leaves, called without a lock by the thread
            that removed it. An exception in it is logged with the key. Also an attribute, to be set at any time.
        stamps: tell this cache what other processes of the machine write, and them what this one does, by key, so that
            no old value is returned after a write elsewhere. Keys are strings, or tuples of what looks the same in
            every process. Each cache needs an object of its own.
        clock: seconds. With a ``ManualClock``, moving the clock advances the wheel; otherwise a thread does.

    Raises:
        TypeError, ValueError: naming the argument, what it takes and what it got.
        FileUnusable: naming ``figures_dir`` or ``snapshot_dir``.
    """

    name: str = _DEFAULTS["name"]
    max_entries: int | None = _DEFAULTS["max_entries"]
    max_weight: int | None = _DEFAULTS["max_weight"]
    weigher: Weigher | None = _DEFAULTS["weigher"]
    ttl: float | None = _DEFAULTS["ttl"]
    jitter: float = _DEFAULTS["jitter"]
    interval: float = _DEFAULTS["interval"]
    slots: int = _DEFAULTS["slots"]
    log_interval: float | None = _DEFAULTS["log_interval"]
    sample_interval: float | None = _DEFAULTS["sample_interval"]
    figures_dir: Path | None = _DEFAULTS["figures_dir"]
    snapshot_dir: Path | None = _DEFAULTS["snapshot_dir"]
    snapshot_interval: float = _DEFAULTS["snapshot_interval"]
    snapshot_key: str | bytes | None = _DEFAULTS["snapshot_key"]
    on_removal: Listener | None = _DEFAULTS["on_removal"]
    stamps: Stamps | None = _DEFAULTS["stamps"]
    clock: Clock = _DEFAULTS["clock"]

    @property
    def secret(self) -> bytes | None:
        return options.secret_or_none("snapshot_key", self.snapshot_key)

    def __post_init__(self) -> None:
        for name, value in ENGINE.checked(vars(self)).items():
            object.__setattr__(self, name, value)
        if (self.max_weight is None) != (self.weigher is None):
            raise TypeError("max_weight and weigher must be given together")
