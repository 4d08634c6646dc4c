"""All options: their names in the engine, in Django and in Flask, their checks, defaults and descriptions.

The arguments of ``Cache``, the options of both backends, the system checks, the errors of unknown options and the
option tables of the documentation are made from ``TABLE``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Flag, auto
from pathlib import Path
from typing import Any, Final, NamedTuple

from wheelcache.engine import options
from wheelcache.engine.codec import size_of
from wheelcache.engine.options import Check
from wheelcache.engine.runtime.clock import SystemClock
from wheelcache.errors import DirectoryUnusable


class TakenBy(Flag):
    """The classes that accept an option: ``Cache``, and each framework's cache in memory, of the machine, or tiered."""

    ENGINE = auto()
    WHEEL = auto()
    HOST = auto()
    TIERED = auto()


ENGINE_ONLY: Final = TakenBy.ENGINE
WHEEL: Final = TakenBy.WHEEL
HOST: Final = TakenBy.HOST
TIERED: Final = TakenBy.TIERED
OWN_ENTRIES: Final = WHEEL | HOST
BACKENDS: Final = OWN_ENTRIES | TIERED
ALL: Final = TakenBy.ENGINE | BACKENDS
NOT_TIERED: Final = TakenBy.ENGINE | OWN_ENTRIES
NOT_HOST: Final = TakenBy.ENGINE | WHEEL | TIERED

NOT_GIVEN: Final = object()

THRESHOLD: Final = 500
"""The default of cachelib's SimpleCache, which a threshold of 0 stands for as well."""

OF_THE_SITE: Final = object()
"""The default of FIGURES_DIR in Django: a directory that all processes of the site have in common."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """The name of an option in one interface, and the values that it accepts there.

    Attributes:
        name: the name in the settings of the interface.
        check, default, meaning: the check, the default and the description in this interface, if they differ from those
            of the option. The check need not accept the default: see CULL_FREQUENCY.
    """

    name: str
    check: Check | None = None
    default: Any = NOT_GIVEN
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class Option:
    """An option, independent of the interface.

    Attributes:
        name: the name of the argument of ``Cache``. Options that only backends have are named in the same way.
        taken_by: the classes that accept the option.
        check, default: see ``Spelling``.
        meaning: the description in the documentation; empty if only the engine has the option: see ``Cache``.
        is_secret: whether the value is hidden from operators.
    """

    name: str
    taken_by: TakenBy
    check: Check
    default: Any
    meaning: str = ""
    is_secret: bool = False

    def spelled(self, spelling: Spelling) -> Option:
        """Return this option with the check and the default that it has in an interface."""
        default = self.default if spelling.default is NOT_GIVEN else spelling.default
        check, meaning = spelling.check or self.check, spelling.meaning or self.meaning
        return replace(self, check=check, default=default, meaning=meaning)

    def in_words(self, value: Any) -> str:
        """Return a checked value in words, for operators."""
        if self.is_secret and value is not None:
            return "secret"
        if value is OF_THE_SITE:
            return "the directory of the site"
        if isinstance(value, tuple):
            if all(isinstance(each, str) for each in value) and value:
                return ", ".join(value)
            # Either one time for all keys, or several by prefix.
            times = dict(value)
            return repr(times if times.keys() - {""} else times.get("", 0))
        if callable(value) and hasattr(value, "__qualname__"):
            return f"{value.__module__}.{value.__qualname__}"
        return str(value) if isinstance(value, str | Path) and value else repr(value)


TABLE: Final = (
    # For the copies of a tiered cache.
    Option("l2", TIERED, options.unchecked, None, "the other cache"),
    Option("l2_options", TIERED, options.unchecked, None, "the `CACHE_OPTIONS` of the other cache", is_secret=True),
    Option("l1_timeout", TIERED, options.seconds, 60.0, "the maximum lifetime of a copy in seconds"),
    Option("l2_timeout", TIERED, options.seconds, 1.0, "the timeout of the other cache's sockets in seconds"),
    Option(
        "fail_safe",
        TIERED,
        options.flag,
        False,
        "whether copies are returned while the other cache fails, for `GRACE` seconds after their expiry",
    ),
    Option(
        "grace", TIERED, options.seconds, 300.0, "seconds after the expiry of a copy for which `FAIL_SAFE` returns it"
    ),
    Option(
        "writes_without_l2",
        TIERED,
        options.one_of("drop", "refuse"),
        "drop",
        "with `FAIL_SAFE`, whether a write that fails is dropped or raises the exception",
    ),
    # For every cache.
    Option("max_entries", ALL, options.count_or_none, None, "the maximum number of entries"),
    Option("location", HOST, options.text, "", "an absolute path: the folder of the entries; otherwise a name"),
    Option("max_size", HOST, options.size, 128 << 20, "the maximum size of all keys and values in bytes"),
    Option(
        "policy",
        NOT_HOST,
        options.one_of("lru", "adaptive"),
        "lru",
        'the entries that leave a full cache: `"lru"`, the least recently used; `"adaptive"`, by recency or frequency '
        "(compiled core only)",
    ),
    Option(
        "cull_frequency",
        OWN_ENTRIES,
        options.as_django_reads(options.whole),
        None,
        "has no effect, since a full cache evicts entries one at a time",
    ),
    Option("default_timeout", OWN_ENTRIES, options.timeout, 300, "seconds or a `timedelta`; `0` for never"),
    Option(
        *("default_timeout", TIERED, options.or_none(options.finite_timeout), None),
        "the default timeout of the other cache",
    ),
    Option("ignore_delete_many_errors", BACKENDS, options.unchecked, False, "has no effect, since deletes cannot fail"),
    Option("key_prefix", OWN_ENTRIES, options.text, "", "a prefix of every key"),
    Option(
        "max_weight", NOT_HOST, options.count_or_none, None, "the maximum size of all keys, values and entries in bytes"
    ),
    Option("weigher", ENGINE_ONLY, options.function_or_none, None),
    Option("ttl", ENGINE_ONLY, options.ttl, None),
    Option("jitter", ALL, options.fraction, 0.05, "every timeout is shortened by a random fraction of at most this"),
    Option("interval", ALL, options.interval, 1.0, "seconds per tick of the wheel"),
    Option(
        "log_interval", ALL, options.interval_or_none, 60.0, "seconds between lines of logger `wheelcache.engine.stats`"
    ),
    Option("keep_history", ENGINE_ONLY, options.flag, True),
    Option("name", ALL, options.text, "default", "the name of the cache in log lines"),
    Option(
        "serializer",
        BACKENDS,
        options.serializer_name,
        "pickle",
        '`"pickle"` keeps immutable values as they are and pickles the others',
    ),
    Option(
        "fill_wait",
        BACKENDS,
        options.waits,
        (),
        "seconds for which a `get` waits, after a miss, for another caller to compute the value",
    ),
    Option(
        "fill_grace",
        OWN_ENTRIES,
        options.waits,
        (),
        "seconds after its timeout for which the old value is returned while another caller computes the new one",
    ),
    Option(
        "transactions",
        BACKENDS,
        options.transactions,
        False,
        "whether values and deletes inside a transaction of the database reach others when it is committed; "
        "or a list of aliases of `DATABASES`",
    ),
    Option(
        "background_context",
        NOT_TIERED,
        options.function_or_none,
        None,
        "a function, or its dotted path; returns a context manager, which is entered around each background load",
    ),
    Option("trust", ENGINE_ONLY, options.word_or_none, None),
    Option(
        "figures_dir",
        ALL,
        options.path_or_none,
        None,
        "the directory in which the workers publish their figures for each other",
    ),
    Option("inspect", BACKENDS, options.flag, False, "the dashboard finds, lists and deletes entries for inspectors"),
    Option("on_removal", ENGINE_ONLY, options.function_or_none, None),
    Option("clock", ENGINE_ONLY, options.function, SystemClock.steady),
)
"""Names are the same in the engine and in Flask, and in capitals in Django. Exceptions are in the following tables."""

IN_DJANGO: Final[dict[str, Spelling | None]] = {
    "l2": Spelling("L2", options.text),
    "l2_options": None,
    "max_entries": Spelling("MAX_ENTRIES", options.as_django_reads(options.count_or_none), 10_000),
    "default_timeout": None,
    "ignore_delete_many_errors": None,
    "key_prefix": None,
    "location": None,
    "max_weight": Spelling("MAX_BYTES"),
    "name": None,
    "background_context": Spelling("BACKGROUND_CONTEXT", options.function_by_path_or_none),
    "figures_dir": Spelling("FIGURES_DIR", default=OF_THE_SITE),
}
"""The options with another name, check or default in Django's settings; None for options that do not exist there."""

IN_FLASK: Final[dict[str, Spelling | None]] = {
    "max_entries": Spelling("threshold", options.zero_for(THRESHOLD, options.whole), THRESHOLD),
    "cull_frequency": None,
    "max_weight": Spelling("max_bytes"),
    "serializer": None,
    "transactions": Spelling(
        "transactions",
        options.flag,
        meaning="whether values and deletes inside a transaction that the site announces reach others when it is "
        "committed",
    ),
    "background_context": Spelling("background_context", options.function_by_path_or_none),
}
"""The same for Flask's configuration."""


class Setting(NamedTuple):
    """An option of a cache, as operators see it.

    Attributes:
        name: the name as the interface spells it.
        value: the value in words.
        is_default: whether the value is the default.
        meaning: the description.
    """

    name: str
    value: str
    is_default: bool
    meaning: str


class Options(Mapping[str, Option]):
    """The options of one interface, with the names, checks and defaults of this interface."""

    def __init__(
        self, taken_by: TakenBy, spellings: Mapping[str, Spelling | None], spell: Callable[[str], str] = str
    ) -> None:
        self._by_name: dict[str, Option] = {}
        for option in TABLE:
            spelling = spellings.get(option.name, Spelling(spell(option.name)))
            if taken_by in option.taken_by and spelling is not None:
                self._by_name[spelling.name] = option.spelled(spelling)

    def __getitem__(self, name: str) -> Option:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def unknown(self, given: Iterable[Any], cache: str) -> str | None:
        """Return a message about the names in ``given`` that are not options: see ``options.unknown``."""
        return options.unknown(given, self, cache)

    def checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of all options by ``Option.name``: the checked values of ``given``, and defaults.

        Raises:
            TypeError, ValueError: if a value is invalid. The message names the option as in this interface.
        """
        checked = {
            option.name: option.check(name, given[name]) if name in given else option.default
            for name, option in self.items()
        }
        if checked.get("policy") == "adaptive" and checked["max_entries"] is None:
            name, needed = self.spelled("policy"), self.spelled("max_entries")
            raise ValueError(f"{name} 'adaptive' needs {needed}, a whole number >= 1, not None")
        waits = [prefix for prefix, wait in checked.get("fill_wait", ()) if wait]
        for prefix, grace in checked.get("fill_grace", ()):
            if grace and not any(prefix.startswith(each) or each.startswith(prefix) for each in waits):
                name, needed = self.spelled("fill_grace"), self.spelled("fill_wait")
                keys = f" of keys that begin with {prefix!r}" if prefix else ""
                raise ValueError(f"{name}{keys} needs {needed}: without it, no `get` waits for another caller")
        return checked

    def spelled(self, option: str) -> str:
        """Return the name of an option in this interface."""
        return next(name for name, each in self.items() if each.name == option)

    def for_engine(self, checked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of ``Cache``. Backends weigh entries in bytes."""
        arguments = {option.name: checked[option.name] for option in self.values() if TakenBy.ENGINE in option.taken_by}
        if arguments.get("max_weight") is not None:
            arguments["weigher"] = size_of
        return arguments

    @contextmanager
    def in_errors(self) -> Iterator[None]:
        """Let an error about a directory, which ``Cache`` raises, name the option as in this interface."""
        try:
            yield
        except DirectoryUnusable as error:
            raise DirectoryUnusable(self.spelled(error.option), error.reason) from error

    def settings(self, checked: Mapping[str, Any]) -> list[Setting]:
        """Return the settings for operators, from the result of ``checked``."""
        return [
            Setting(
                name,
                option.in_words(checked[option.name]),
                checked[option.name] == option.default,
                option.meaning.replace("`", ""),
            )
            for name, option in self.items()
            if option.name in checked
        ]


def is_inspectable(settings: Iterable[Setting]) -> bool:
    """Return whether a cache with these settings has the option ``inspect``."""
    return any(each.name.casefold() == "inspect" and not each.is_default for each in settings)


ENGINE: Final = Options(TakenBy.ENGINE, {})
DJANGO: Final = Options(WHEEL, IN_DJANGO, str.upper)
DJANGO_HOST: Final = Options(
    HOST,
    {**IN_DJANGO, "max_entries": Spelling("MAX_ENTRIES", options.as_django_reads(options.count_or_none))},
    str.upper,
)
DJANGO_TIERED: Final = Options(TIERED, IN_DJANGO, str.upper)
FLASK: Final = Options(WHEEL, IN_FLASK)
FLASK_HOST: Final = Options(HOST, {**IN_FLASK, "max_entries": Spelling("max_entries")})
FLASK_TIERED: Final = Options(TIERED, IN_FLASK)
