"""The options of a cache, checked. Their checks and defaults are in ``option_table``."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypedDict

from wheelcache.coherence.shared_stamps import Stamps
from wheelcache.option_table import ENGINE
from wheelcache.runtime.clock import Clock
from wheelcache.writing.entry_writer import Weigher
from wheelcache.writing.removal_listener import Listener


class CacheOptions(TypedDict, total=False):
    """What ``Cache`` takes beside its name.

    Attributes:
        max_entries: how many entries it holds at most; None for no bound. The least recently used leave first.
        max_weight: the most that the weights of all entries may add up to; needs ``weigher``.
        weigher: ``weigher(key, value)``, the weight of an entry, an int >= 0.
        ttl: seconds until an entry expires unless ``set`` says otherwise; None for never.
        jitter: every TTL is shortened by a random fraction of at most ``jitter``, and by at most 60 seconds, so that
            what is set together does not expire together. ``add`` and ``touch`` keep theirs exactly.
        interval: seconds a tick of the wheel: how soon an expired entry leaves memory. Reads are exact whatever it is.
        slots: ticks that the wheel's finest level spans.
        log_interval: seconds between lines on the logger ``wheelcache.stats``; None for none.
        sample_interval: seconds between looks at the memory that the entries take, where nothing is published; None for
            no such looks, and no steps for charts.
        figures_dir: where to publish the figures of this process every three seconds, and see those of the others: see
            ``site_file``. None for not.
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
    """

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


def checked_options(name: str, given: CacheOptions) -> Any:
    """The options of the cache ``name`` as attributes: those that were given, checked, and the defaults of the others.

    Raises:
        TypeError, ValueError, FileUnusable: an argument is unknown or wrong; names it, what it takes and what it got.
    """
    unknown = ENGINE.unknown(given, f"the cache {name!r}")
    if unknown is not None:
        raise TypeError(unknown)
    checked = SimpleNamespace(**ENGINE.checked({"name": name, **given}))
    if (checked.max_weight is None) != (checked.weigher is None):
        raise TypeError("max_weight and weigher must be given together")
    return checked
