"""All options: their names in the engine, in Django and in Flask, their checks, defaults and descriptions.

The arguments of ``Cache``, the options of both backends, the system checks, the errors of unknown options and the
option tables of the documentation are made from ``TABLE``. The options of a guest are in its module ``options``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from wheelcache.engine import options
from wheelcache.engine.codec import size_of
from wheelcache.engine.guests import is_missing, module_of, modules_named
from wheelcache.engine.options import Check
from wheelcache.errors import DirectoryUnusable
from wheelcache.runtime.clock import SystemClock

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
    """

    name: str = ""
    check: Check | None = None
    default: Any = NOT_GIVEN
    meaning: str = ""


USUAL: Final = Spelling()

BESIDE_OPTIONS: Final = frozenset({"timeout", "key_prefix", "version", "key_function", "location"})
"""The settings of a cache of Django that are not in its OPTIONS."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option, independent of the interface.

    Attributes:
        name: the name of the argument of ``Cache``. Options that only backends have are named in the same way.
        check, default: see ``Spelling``.
        meaning: the description in the documentation; empty if only ``Cache`` has the option.
        django, flask: the option in the settings of these frameworks; None if a framework does not have it.
        is_argument: whether it is an argument of ``Cache``.
        needs: checks a given value against the other options. It receives the names of the options in the interface.
        words: returns a checked value in words, if ``in_words`` cannot.
    """

    name: str
    check: Check
    default: Any
    meaning: str = ""
    django: Spelling | None = USUAL
    flask: Spelling | None = USUAL
    is_argument: bool = False
    needs: Callable[[Mapping[str, Any], Callable[[str], str]], None] | None = None
    words: Callable[[Any], str] | None = None

    def spelled(self, spelling: Spelling) -> Option:
        """Return this option with the check and the default that it has in an interface."""
        default = self.default if spelling.default is NOT_GIVEN else spelling.default
        check, meaning = spelling.check or self.check, spelling.meaning or self.meaning
        return replace(self, check=check, default=default, meaning=meaning)

    def in_words(self, value: Any) -> str:
        """Return a checked value in words, for operators."""
        if self.words is not None:
            return self.words(value)
        if isinstance(value, Mapping):
            # The options of another cache, among which may be a password.
            return "secret"
        if value is OF_THE_SITE:
            return "the directory of the site"
        if isinstance(value, tuple):
            return ", ".join(value)
        return str(value) if isinstance(value, str | Path) and value else repr(value)


class OfGuest(NamedTuple):
    """The row of an option of the backends that is described in the module ``options`` of a guest.

    A setting that names the option loads the module. Without the guest, such a setting is an error.

    Attributes:
        is_on: whether the option has an effect by default, so that each backend loads the module if there is one.
    """

    name: str
    guest: str
    is_on: bool = False

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
        *("max_entries", options.count_or_none, None, "the maximum number of entries"),
        is_argument=True,
        django=Spelling(check=options.as_django_reads(options.count_or_none), default=10_000),
        flask=Spelling("threshold", options.zero_for(THRESHOLD, options.whole), THRESHOLD),
    ),
    Option(
        "policy",
        options.one_of("lru", "adaptive"),
        "lru",
        'the entries that leave a full cache: `"lru"`, the least recently used; `"adaptive"`, by recency or frequency '
        "(compiled core only)",
        is_argument=True,
        needs=_adaptive_needs_a_bound,
    ),
    Option(
        "cull_frequency",
        options.as_django_reads(options.whole),
        None,
        "has no effect, since a full cache evicts entries one at a time",
        flask=None,
    ),
    Option("default_timeout", options.timeout, 300, "seconds or a `timedelta`; `0` for never", django=None),
    Option(
        *("ignore_delete_many_errors", options.unchecked, False),
        "has no effect, since deletes cannot fail",
        django=None,
    ),
    Option("key_prefix", options.text, "", "a prefix of every key", django=None),
    Option(
        *("max_weight", options.count_or_none, None),
        "the maximum size of all keys, values and entries in bytes",
        is_argument=True,
        django=Spelling("MAX_BYTES"),
        flask=Spelling("max_bytes"),
    ),
    Option(
        *("jitter", options.fraction, 0.05, "every timeout is shortened by a random fraction of at most this"),
        is_argument=True,
    ),
    Option("name", options.text, "default", "the name of the cache in log lines", django=None, is_argument=True),
    Option(
        "serializer",
        options.serializer_name,
        "pickle",
        '`"pickle"` keeps immutable values as they are and pickles the others',
        flask=None,
    ),
    OfGuest("fill_wait", "fill_waits", is_on=True),
    OfGuest("grace", "fill_waits"),
    OfGuest("transactions", "transactions"),
    Option(
        *("figures_dir", options.path_or_none, None),
        "the directory in which the workers publish their figures for each other",
        is_argument=True,
        django=Spelling(default=OF_THE_SITE),
        needs=_figures_need_watch,
    ),
)
"""The options of the backends. Most of them are arguments of ``Cache``, too."""


class Setting(NamedTuple):
    """An option of a cache, as operators see it.

    Attributes:
        name: the name as the interface spells it.
        value: the value in words.
        is_default: whether the value is the default.
    """

    name: str
    value: str
    is_default: bool


class Options(Mapping[str, Option]):
    """The options of one interface, with the names, checks and defaults of this interface.

    Args:
        framework: "django", "flask", or "" for the engine.
        rows: the options.
    """

    def __init__(self, framework: str, rows: Iterable[Option | OfGuest]) -> None:
        self._framework = framework
        self._rows: dict[str, Option | OfGuest] = {}
        self._of_guests: dict[str, Option] = {}
        for row in rows:
            if isinstance(row, OfGuest):
                self._rows[self._usual_name(row)] = row
            elif (spelling := self._spelling(row)) is not None:
                self._rows[spelling.name or self._usual_name(row)] = row.spelled(spelling)

    @classmethod
    def of_backend(cls, framework: str, own: Collection[Option] = (), without: Collection[str] = ()) -> Options:
        """Return the options of a backend: its own, and those of all backends ``without`` some.

        An option of its own stands in place of the option of all backends with the same name.
        """
        known = {row.name for row in TABLE}
        replaced = {row.name: row for row in own}
        others = [replaced.get(row.name, row) for row in TABLE if row.name not in without]
        return cls(framework, [*(row for row in own if row.name not in known), *others])

    def _usual_name(self, row: Option | OfGuest) -> str:
        return row.name.upper() if self._framework == "django" else row.name

    def _spelling(self, option: Option) -> Spelling | None:
        spelling: Spelling | None = getattr(option, self._framework, USUAL)
        return spelling

    def __getitem__(self, name: str) -> Option:
        row = self._rows[name]
        if not isinstance(row, OfGuest):
            return row
        if name not in self._of_guests:
            option = row.find()
            if option is None:
                raise KeyError(name)
            self._of_guests[name] = option.spelled(self._spelling(option) or USUAL)
        return self._of_guests[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._rows if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def unknown(self, given: Iterable[Any], cache: str) -> str | None:
        """Return a message about the names in ``given`` that are not options: see ``options.unknown``."""
        return options.unknown(given, self._rows, cache, self._elsewhere)

    def _elsewhere(self, given: str) -> str | None:
        """Return a hint about an option in lower case that has another name or place, or that another backend has."""
        if self._framework == "django" and given in BESIDE_OPTIONS:
            return "it belongs next to OPTIONS"
        for name, row in self._rows.items():
            if row.name == given:
                return f"did you mean {name}?"
        owners = [
            backend for backend, tables in _backends() if given in map(str.casefold, tables.get(self._framework, {}))
        ]
        return f"it belongs to {' and '.join(owners)}" if owners else None

    def checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the options by ``Option.name``: the checked values of ``given``, and defaults.

        The options of guests are left out if they have their defaults, unless these have an effect.

        Raises:
            TypeError, ValueError: if a value is invalid, or if an option needs a guest that is missing. The message
                names the option as in this interface.
        """
        checked = {row.name: row.default for row in self._rows.values() if isinstance(row, Option)}
        for name, row in self._rows.items():
            if name in given and isinstance(row, OfGuest) and row.find() is None:
                raise ValueError(is_missing(row.guest, name))
        on = [name for name, row in self._rows.items() if isinstance(row, OfGuest) and row.is_on and name in self]
        checked |= {self[name].name: self[name].default for name in on}
        found = [(name, self[name]) for name in self._rows if name in given]
        for name, option in found:
            checked[option.name] = option.check(name, given[name])
        for name, option in found:
            if option.needs is not None:
                option.needs(checked, self.spelled)
            if name in self._of_guests and name not in on and checked[option.name] == option.default:
                del checked[option.name]
        return checked

    def spelled(self, option: str) -> str:
        """Return the name of an option in this interface."""
        return next(name for name, row in self._rows.items() if row.name == option)

    def for_engine(self, checked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of ``Cache``. Backends weigh entries in bytes."""
        rows = (row for row in self._rows.values() if isinstance(row, Option) and row.is_argument)
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
                value = checked.get(option.name, option.default)
                found.append(Setting(name, option.in_words(value), value == option.default))
        return found


ENGINE: Final = Options(
    "",
    (
        *(row for row in TABLE if isinstance(row, Option) and row.is_argument),
        Option("weigher", options.function_or_none, None),
        Option("ttl", options.ttl, None),
        Option("trust", options.word_or_none, None),
        Option("on_removal", options.function_or_none, None),
        Option("clock", options.function, SystemClock.steady),
    ),
)
DJANGO: Final = Options.of_backend("django")
FLASK: Final = Options.of_backend("flask")


def _backends() -> Iterator[tuple[str, Mapping[str, Options]]]:
    """Iterate over the backends, each with its options by framework. Guests have theirs in ``BACKENDS``."""
    yield "WheelCache", {"django": DJANGO, "flask": FLASK}
    for module in modules_named("options"):
        yield from getattr(module, "BACKENDS", {}).items()
