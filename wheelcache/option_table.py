"""Every option: its names in the engine, in Django and in Flask, its check, its default, and what it means.

The arguments of ``Cache``, the options of both backends, the system checks and the errors of unknown options are made
from ``TABLE``, and the option tables of README.md are checked against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Flag, auto
from typing import Any, Final

from wheelcache import options
from wheelcache.codec import size_of
from wheelcache.observability.figures_directory import figures_directory_or_none
from wheelcache.options import Check
from wheelcache.persistence.snapshot_directory import snapshot_directory_or_none
from wheelcache.runtime.clock import SystemClock


class Backend(Flag):
    """The classes of a framework that take an option."""

    WHEEL = auto()
    TIERED = auto()


BOTH: Final = Backend.WHEEL | Backend.TIERED

THRESHOLD: Final = 500
"""As in cachelib's SimpleCache, also for a threshold of 0."""

OF_THE_SITE: Final = object()
"""Django's default of FIGURES_DIR: the directory that all processes of the site find."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """How one interface spells an option, and what it takes there.

    Attributes:
        name: in the settings of the interface.
        check, default: those of the option, unless the interface has its own. The default need not be a value that the
            check takes: see CULL_FREQUENCY.
    """

    name: str
    check: Check | None = None
    default: Any = ...


@dataclass(frozen=True, slots=True)
class Option:
    """An option, as all interfaces have it.

    Attributes:
        name: the argument of ``Cache``; of an option that only backends have, what checked options are called by.
        meaning: the beginning of its description in README.md. Empty for what only the engine has: see ``Cache``.
        check, default: see ``Spelling``.
        django, flask: None if the framework does not have it.
        engine: whether ``Cache`` has it.
        backends: the classes of these frameworks that have it.
    """

    name: str
    check: Check
    default: Any
    meaning: str = ""
    django: Spelling | str | None = None
    flask: Spelling | str | None = None
    engine: bool = True
    backends: Backend = BOTH

    def spelled(self, spelling: Spelling | str) -> tuple[str, Option]:
        """The name in an interface, and the option with the check and the default that it has there."""
        if isinstance(spelling, str):
            return spelling, self
        default = self.default if spelling.default is ... else spelling.default
        return spelling.name, replace(self, check=spelling.check or self.check, default=default)


TABLE: Final = (
    # Of copies of what another cache has.
    Option(
        "l2",
        options.unchecked,
        None,
        "the other cache",
        django=Spelling("L2", options.text),
        flask="l2",
        engine=False,
        backends=Backend.TIERED,
    ),
    Option(
        "l2_options",
        options.unchecked,
        None,
        "its `CACHE_OPTIONS`",
        flask="l2_options",
        engine=False,
        backends=Backend.TIERED,
    ),
    Option(
        "l1_timeout",
        options.seconds,
        60.0,
        "seconds that a copy is kept at most",
        django="L1_TIMEOUT",
        flask="l1_timeout",
        engine=False,
        backends=Backend.TIERED,
    ),
    Option(
        "l2_timeout",
        options.seconds,
        1.0,
        "seconds that a socket of the other cache waits",
        django="L2_TIMEOUT",
        flask="l2_timeout",
        engine=False,
        backends=Backend.TIERED,
    ),
    Option(
        "fail_safe",
        options.flag,
        False,
        "while the other cache fails, copies are returned",
        django="FAIL_SAFE",
        flask="fail_safe",
        engine=False,
        backends=Backend.TIERED,
    ),
    Option(
        "grace",
        options.seconds,
        300.0,
        "seconds past its time that a copy may be returned then",
        django="GRACE",
        flask="grace",
        engine=False,
        backends=Backend.TIERED,
    ),
    Option(
        "writes_without_l2",
        options.one_of("drop", "refuse"),
        "drop",
        "what becomes of a write that fails, with `FAIL_SAFE`",
        django="WRITES_WITHOUT_L2",
        flask="writes_without_l2",
        engine=False,
        backends=Backend.TIERED,
    ),
    # Of every cache.
    Option(
        "max_entries",
        options.count_or_none,
        None,
        "the most that are kept",
        django=Spelling("MAX_ENTRIES", options.as_django_reads(options.count_or_none), 10_000),
        flask=Spelling("threshold", options.zero_for(THRESHOLD, options.whole), THRESHOLD),
    ),
    Option(
        "cull_frequency",
        options.as_django_reads(options.whole),
        None,
        "if given, as Django documents it",
        django="CULL_FREQUENCY",
        engine=False,
        backends=Backend.WHEEL,
    ),
    Option(
        "default_timeout",
        options.timeout,
        300,
        "seconds or a `timedelta`; `0` for never",
        flask="default_timeout",
        engine=False,
        backends=Backend.WHEEL,
    ),
    Option(
        "default_timeout",
        options.timeout_or_none,
        None,
        "that of the other cache",
        flask="default_timeout",
        engine=False,
        backends=Backend.TIERED,
    ),
    Option(
        "ignore_delete_many_errors",
        options.unchecked,
        False,
        "taken, and without effect: no delete can fail",
        flask="ignore_delete_many_errors",
        engine=False,
    ),
    Option(
        "key_prefix",
        options.text,
        "",
        "put before every key",
        flask="key_prefix",
        engine=False,
        backends=Backend.WHEEL,
    ),
    Option(
        "max_weight",
        options.count_or_none,
        None,
        "the most that keys, values and their entries take",
        django="MAX_BYTES",
        flask="max_bytes",
    ),
    Option("weigher", options.function_or_none, None),
    Option("ttl", options.ttl, None),
    Option(
        "jitter",
        options.fraction,
        0.05,
        "every timeout is shortened by a random fraction",
        django="JITTER",
        flask="jitter",
    ),
    Option("interval", options.interval, 1.0, "a tick of the wheel", django="INTERVAL", flask="interval"),
    Option("slots", options.slots, 512, "the span of the wheel's finest level", django="SLOTS", flask="slots"),
    Option(
        "log_interval",
        options.interval_or_none,
        60.0,
        "between lines on the logger `wheelcache.stats`",
        django="LOG_INTERVAL",
        flask="log_interval",
    ),
    Option("sample_interval", options.interval_or_none, 10.0),
    Option("name", options.text, "default", "what the lines on the log call the cache", flask="name"),
    Option(
        "serializer",
        options.serializer_name,
        "pickle",
        '`"pickle"` keeps immutable values as they are and pickles the others',
        django="SERIALIZER",
        engine=False,
    ),
    Option(
        "fill_wait",
        options.waits,
        (),
        "how long a `get` that misses waits for another caller to compute the value",
        django="FILL_WAIT",
        flask="fill_wait",
        engine=False,
    ),
    Option(
        "coherence",
        options.coherence,
        None,
        '`"host"`: the processes of this machine see at once what one of them writes or deletes',
        django="COHERENCE",
        flask="coherence",
        engine=False,
    ),
    Option("stamps", options.stamps_or_none, None),
    Option(
        "figures_dir",
        figures_directory_or_none,
        None,
        "the directory in which the workers show each other their figures",
        django=Spelling("FIGURES_DIR", default=OF_THE_SITE),
        flask="figures_dir",
    ),
    Option(
        "snapshot_dir",
        snapshot_directory_or_none,
        None,
        "an absolute path, of the directory where the entries are kept from one process to the next",
        django="SNAPSHOT",
        flask="snapshot",
        backends=Backend.WHEEL,
    ),
    Option(
        "snapshot_interval",
        options.interval,
        300.0,
        "between two saves of the entries",
        django="SNAPSHOT_INTERVAL",
        flask="snapshot_interval",
        backends=Backend.WHEEL,
    ),
    Option(
        "snapshot_key",
        options.secret_or_none,
        None,
        "a string or bytes that the snapshots are signed with",
        django="SNAPSHOT_KEY",
        flask="snapshot_key",
        backends=Backend.WHEEL,
    ),
    Option("on_removal", options.function_or_none, None),
    Option("clock", options.function, SystemClock.monotonic),
)


class Options(Mapping[str, Option]):
    """The options of one interface, by their names there, with the checks and defaults that they have there."""

    __slots__ = ("_by_name",)

    def __init__(self, spelled: Callable[[Option], Spelling | str | None], table: Iterable[Option] = TABLE) -> None:
        self._by_name: dict[str, Option] = {}
        for option in table:
            spelling = spelled(option)
            if spelling is not None:
                name, own = option.spelled(spelling)
                self._by_name[name] = own

    def __getitem__(self, name: str) -> Option:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def unknown(self, given: Iterable[Any], cache: str) -> str | None:
        """What to say of ``given`` names that are none of these: see ``options.unknown``."""
        return options.unknown(given, self, cache)

    def checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All options by ``Option.name``: those of ``given``, checked, and the defaults of the others.

        Raises:
            TypeError, ValueError, FileUnusable: naming the option as it is spelled here.
        """
        return {
            option.name: option.check(name, given[name]) if name in given else option.default
            for name, option in self.items()
        }

    def for_engine(self, checked: Mapping[str, Any]) -> dict[str, Any]:
        """Those that are arguments of ``Cache``. A backend's weights are bytes."""
        arguments = {option.name: checked[option.name] for option in self.values() if option.engine}
        if arguments["max_weight"] is not None:
            arguments["weigher"] = size_of
        return arguments


ENGINE: Final = Options(lambda option: option.name if option.engine else None)
DJANGO: Final = Options(lambda option: option.django if Backend.WHEEL in option.backends else None)
DJANGO_TIERED: Final = Options(lambda option: option.django if Backend.TIERED in option.backends else None)
FLASK: Final = Options(lambda option: option.flask if Backend.WHEEL in option.backends else None)
FLASK_TIERED: Final = Options(lambda option: option.flask if Backend.TIERED in option.backends else None)
