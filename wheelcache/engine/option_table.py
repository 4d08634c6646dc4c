"""All options: their names in the engine, in Django and in Flask, their checks, defaults and descriptions.

The arguments of ``Cache``, the options of both backends, the system checks, the errors of unknown options and the
option tables of the documentation are made from ``TABLE``. The options of a guest are in its module ``options``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Flag, auto
from pathlib import Path
from typing import Any, Final, NamedTuple

from wheelcache.engine import options
from wheelcache.engine.codec import size_of
from wheelcache.engine.guests import is_missing, module_of
from wheelcache.engine.options import Check
from wheelcache.errors import DirectoryUnusable
from wheelcache.runtime.clock import SystemClock


class TakenBy(Flag):
    """The interfaces that have an option: ``Cache``, and the caches of both frameworks."""

    ENGINE = auto()
    BACKENDS = auto()


ENGINE_ONLY: Final = TakenBy.ENGINE
BACKENDS: Final = TakenBy.BACKENDS
ALL: Final = TakenBy.ENGINE | BACKENDS

NOT_GIVEN: Final = object()

THRESHOLD: Final = 500
"""The default of cachelib's SimpleCache, which a threshold of 0 stands for as well."""

OF_THE_SITE: Final = object()
"""The default of FIGURES_DIR in Django: a directory that all processes of the site have in common."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """An option in the settings of one framework.

    Attributes:
        name: the name, if it is not the usual one: in Django, the option's name in capitals, and in Flask, the same.
        check, default, meaning: the check, the default and the description, if they differ from those of the option.
            The check need not accept the default: see CULL_FREQUENCY.
        is_option: whether this framework has the option.
    """

    name: str = ""
    check: Check | None = None
    default: Any = NOT_GIVEN
    meaning: str = ""
    is_option: bool = True


USUAL: Final = Spelling()
NO_OPTION: Final = Spelling(is_option=False)


@dataclass(frozen=True, slots=True)
class Option:
    """An option, independent of the interface.

    Attributes:
        name: the name of the argument of ``Cache``. Options that only backends have are named in the same way.
        taken_by: the interfaces that have the option.
        check, default: see ``Spelling``.
        meaning: the description in the documentation; empty if only the engine has the option: see ``Cache``.
        is_secret: whether the value is hidden from operators.
        django, flask: the option in the settings of these frameworks.
        needs: checks a given value against the other options. It receives the names of the options in the interface.
    """

    name: str
    taken_by: TakenBy
    check: Check
    default: Any
    meaning: str = ""
    is_secret: bool = False
    django: Spelling = USUAL
    flask: Spelling = USUAL
    needs: Callable[[Mapping[str, Any], Callable[[str], str]], None] | None = None

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


class OfGuest(NamedTuple):
    """The row of an option of the backends that is described in the module ``options`` of a guest.

    A setting that names the option loads the module. Without the guest, such a setting is an error.
    """

    name: str
    guest: str

    def find(self) -> Option | None:
        module = module_of(self.guest, "options")
        return None if module is None else next(row for row in module.OPTIONS if row.name == self.name)


def _adaptive_needs_a_bound(checked: Mapping[str, Any], spelled: Callable[[str], str]) -> None:
    if checked["policy"] == "adaptive" and checked["max_entries"] is None:
        name, needed = spelled("policy"), spelled("max_entries")
        raise ValueError(f"{name} 'adaptive' needs {needed}, a whole number >= 1, not None")


def _figures_need_watch(checked: Mapping[str, Any], spelled: Callable[[str], str]) -> None:
    if checked["figures_dir"] is not None and module_of("watch", "observers") is None:
        raise ValueError(is_missing("watch", spelled("figures_dir")))


TABLE: Final = (
    Option(
        *("max_entries", ALL, options.count_or_none, None, "the maximum number of entries"),
        django=Spelling(check=options.as_django_reads(options.count_or_none), default=10_000),
        flask=Spelling("threshold", options.zero_for(THRESHOLD, options.whole), THRESHOLD),
    ),
    Option(
        "policy",
        ALL,
        options.one_of("lru", "adaptive"),
        "lru",
        'the entries that leave a full cache: `"lru"`, the least recently used; `"adaptive"`, by recency or frequency '
        "(compiled core only)",
        needs=_adaptive_needs_a_bound,
    ),
    Option(
        "cull_frequency",
        BACKENDS,
        options.as_django_reads(options.whole),
        None,
        "has no effect, since a full cache evicts entries one at a time",
        flask=NO_OPTION,
    ),
    Option(
        *("default_timeout", BACKENDS, options.timeout, 300, "seconds or a `timedelta`; `0` for never"),
        django=NO_OPTION,
    ),
    Option(
        *("ignore_delete_many_errors", BACKENDS, options.unchecked, False),
        "has no effect, since deletes cannot fail",
        django=NO_OPTION,
    ),
    Option("key_prefix", BACKENDS, options.text, "", "a prefix of every key", django=NO_OPTION),
    Option(
        *("max_weight", ALL, options.count_or_none, None),
        "the maximum size of all keys, values and entries in bytes",
        django=Spelling("MAX_BYTES"),
        flask=Spelling("max_bytes"),
    ),
    Option("weigher", ENGINE_ONLY, options.function_or_none, None),
    Option("ttl", ENGINE_ONLY, options.ttl, None),
    Option("jitter", ALL, options.fraction, 0.05, "every timeout is shortened by a random fraction of at most this"),
    Option("interval", ALL, options.interval, 1.0, "seconds per tick of the wheel"),
    Option("log_interval", ALL, options.interval_or_none, 60.0, "seconds between lines of logger `wheelcache.stats`"),
    Option("name", ALL, options.text, "default", "the name of the cache in log lines", django=NO_OPTION),
    Option(
        "serializer",
        BACKENDS,
        options.serializer_name,
        "pickle",
        '`"pickle"` keeps immutable values as they are and pickles the others',
        flask=NO_OPTION,
    ),
    OfGuest("fill_wait", "fill_waits"),
    OfGuest("fill_grace", "fill_waits"),
    OfGuest("transactions", "transactions"),
    Option(
        "background_context",
        ALL,
        options.function_or_none,
        None,
        "a function, or its dotted path; returns a context manager, which is entered around each background load",
        django=Spelling(check=options.function_by_path_or_none),
        flask=Spelling(check=options.function_by_path_or_none),
    ),
    Option("trust", ENGINE_ONLY, options.word_or_none, None),
    Option(
        *("figures_dir", ALL, options.path_or_none, None),
        "the directory in which the workers publish their figures for each other",
        django=Spelling(default=OF_THE_SITE),
        needs=_figures_need_watch,
    ),
    OfGuest("inspect", "watch"),
    Option("on_removal", ENGINE_ONLY, options.function_or_none, None),
    Option("clock", ENGINE_ONLY, options.function, SystemClock.steady),
)


def rows_for(taken_by: TakenBy, *instead: Option, without: Collection[str] = ()) -> tuple[Option | OfGuest, ...]:
    """Return the rows of an interface, or of a backend of a guest, which has some of them in another form or not."""
    replaced = {row.name: row for row in instead}
    return tuple(
        replaced.get(row.name, row)
        for row in TABLE
        if (taken_by in row.taken_by if isinstance(row, Option) else taken_by is BACKENDS) and row.name not in without
    )


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
    """The options of one interface, with the names, checks and defaults of this interface.

    Args:
        rows: the options.
        framework: "django", "flask", or "" for the engine.
    """

    def __init__(self, rows: Iterable[Option | OfGuest], framework: str = "") -> None:
        self._framework = framework
        self._rows: dict[str, Option | OfGuest] = {}
        self._of_guests: dict[str, Option] = {}
        for row in rows:
            if isinstance(row, OfGuest):
                self._rows[self._usual_name(row)] = row
            elif (spelling := self._spelling(row)).is_option:
                self._rows[spelling.name or self._usual_name(row)] = row.spelled(spelling)

    def _usual_name(self, row: Option | OfGuest) -> str:
        return row.name.upper() if self._framework == "django" else row.name

    def _spelling(self, option: Option) -> Spelling:
        return getattr(option, self._framework, USUAL)

    def __getitem__(self, name: str) -> Option:
        row = self._rows[name]
        if not isinstance(row, OfGuest):
            return row
        if name not in self._of_guests:
            option = row.find()
            if option is None:
                raise KeyError(name)
            self._of_guests[name] = option.spelled(self._spelling(option))
        return self._of_guests[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._rows if name in self)

    def __len__(self) -> int:
        return len([*self])

    def unknown(self, given: Iterable[Any], cache: str) -> str | None:
        """Return a message about the names in ``given`` that are not options: see ``options.unknown``."""
        return options.unknown(given, self._rows, cache)

    def checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the options by ``Option.name``: the checked values of ``given``, and defaults.

        The options of guests are left out if they have their defaults.

        Raises:
            TypeError, ValueError: if a value is invalid, or if an option needs a guest that is missing. The message
                names the option as in this interface.
        """
        checked = {row.name: row.default for row in self._rows.values() if isinstance(row, Option)}
        for name, row in self._rows.items():
            if name in given and isinstance(row, OfGuest) and row.find() is None:
                raise ValueError(is_missing(row.guest, name))
        found = [(name, self[name]) for name in self._rows if name in given]
        for name, option in found:
            checked[option.name] = option.check(name, given[name])
        for name, option in found:
            if option.needs is not None:
                option.needs(checked, self.spelled)
            if name in self._of_guests and checked[option.name] == option.default:
                del checked[option.name]
        return checked

    def spelled(self, option: str) -> str:
        """Return the name of an option in this interface."""
        return next(name for name, row in self._rows.items() if row.name == option)

    def for_engine(self, checked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of ``Cache``. Backends weigh entries in bytes."""
        rows = (row for row in self._rows.values() if isinstance(row, Option) and TakenBy.ENGINE in row.taken_by)
        arguments = {row.name: checked[row.name] for row in rows}
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
        found = []
        for name, option in self.items():
            if option.name in checked or name in self._of_guests:
                value, meaning = checked.get(option.name, option.default), option.meaning.replace("`", "")
                found.append(Setting(name, option.in_words(value), value == option.default, meaning))
        return found


ENGINE: Final = Options(rows_for(ENGINE_ONLY))
DJANGO: Final = Options(rows_for(BACKENDS), "django")
FLASK: Final = Options(rows_for(BACKENDS), "flask")
