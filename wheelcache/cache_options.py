"""The options of a cache, checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wheelcache import options
from wheelcache.coherence.shared_stamps import Stamps
from wheelcache.persistence.snapshot_directory import snapshot_directory_or_none
from wheelcache.runtime.clock import Clock
from wheelcache.writing.entry_writer import Weigher
from wheelcache.writing.removal_listener import Listener


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """What ``Cache`` takes: see there.

    Raises:
        TypeError, ValueError: naming the argument, what it takes and what it got.
        FileUnusable: naming ``figures_dir`` or ``snapshot_dir``.
    """

    name: str
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
    snapshot_key: bytes | None
    on_removal: Listener | None
    stamps: Stamps | None
    clock: Clock

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))
        if (self.max_weight is None) != (self.weigher is None):
            raise TypeError("max_weight and weigher must be given together")


_CHECKS: Final[dict[str, options.Check]] = {
    "name": options.text,
    "max_entries": options.count_or_none,
    "max_weight": options.count_or_none,
    "weigher": options.function_or_none,
    "ttl": options.ttl,
    "jitter": options.fraction,
    "interval": options.interval,
    "slots": options.slots,
    "log_interval": options.interval_or_none,
    "sample_interval": options.interval_or_none,
    "snapshot_dir": snapshot_directory_or_none,
    "snapshot_interval": options.interval,
    "snapshot_key": options.secret_or_none,
    "on_removal": options.function_or_none,
    "stamps": options.stamps_or_none,
    "clock": options.function,
}
