"""The stores of the process: one for each LOCATION and OPTIONS, shared by any number of backend objects.

Django makes a backend object for every alias in every thread and async context. So a look-up here must cost only
microseconds: the options are checked once, when the store is made.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Final, Self

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from wheelcache.cache import Cache
from wheelcache.core.contract import GroupRule
from wheelcache.django_backend.site_settings import cache_in_words, figures_directory, use_release
from wheelcache.engine import options
from wheelcache.engine.backend_access import ByPrefix
from wheelcache.engine.codec import Codec, Pickle, is_bare, is_immutable
from wheelcache.engine.guests import module_of
from wheelcache.engine.layer import Above
from wheelcache.engine.option_table import DJANGO as OPTIONS
from wheelcache.engine.option_table import OF_THE_SITE, Options, Setting
from wheelcache.engine.options import SERIALIZER_TAKES
from wheelcache.errors import FileUnusable
from wheelcache.runtime.shared_objects import Lazy

GROUPS: Final = (
    GroupRule("views.decorators.cache.cache_", "pages", ""),
    GroupRule("template.cache.", "fragment ", "."),
    GroupRule("django.contrib.sessions.", "sessions", ""),
    GroupRule("", "", ":"),
)
"""The groups of keys: the pages of ``cache_page``, the other keys that Django makes, and for all others the text up to
the first colon."""

MOST_PREFIXES: Final = 8
"""The key prefixes of one store, of several aliases, whose keys are grouped."""


class Store:
    """A cache and the codec of its values, made from checked options.

    Attributes:
        fill_waits, graces: see ``BackendAccess``.
        keeps_atoms: whether immutable values are stored as they are.
        keeps: returns whether a value is stored as it is, without a serializer of the site.
        sender: the class of backends that sends the signals of this store, if it is not ``WheelCache``.
        locks: the table of the locks of the entries, made by the first ``lock``.
        above: with TRANSACTIONS, makes the layer of the open transactions; otherwise None.
    """

    __slots__ = (*("_checked", "_prefixes", "above", "cache", "codec", "graces", "fill_waits", "keeps_atoms", "locks"),)

    options: ClassVar[Options] = OPTIONS
    keeps: Callable[[Any], bool] = staticmethod(is_immutable)
    sender: ClassVar[type | None] = None

    def __init__(self, name: str, checked: Mapping[str, Any], trust: array[int] | None = None) -> None:
        self._checked = checked
        self.fill_waits: ByPrefix = checked.get("fill_wait", ())
        self.graces: ByPrefix = checked.get("grace", ())
        self.codec = self._make_codec(checked["serializer"])
        self.keeps_atoms = checked["serializer"] in ("pickle", "reference")
        if checked.get("max_weight") is not None and checked["serializer"] == "reference":
            raise ValueError(
                f"MAX_BYTES must be None with SERIALIZER 'reference', not {options.shown(checked['max_weight'])}: "
                "the size of an object that is kept by reference is not known"
            )
        arguments = self.options.for_engine(checked) | {"name": name, "trust": trust}
        if arguments["figures_dir"] is OF_THE_SITE:
            arguments["figures_dir"] = figures_directory()
        use_release()
        with self.options.in_errors():
            self.cache = self._make_cache(arguments)
        self.above: Above | None = None
        if checked.get("transactions"):
            guest = module_of("transactions", "django_connections")
            self.above = guest.above(self.cache, checked, has_store="l2" in checked)
        self.locks = Lazy(self._make_locks)
        self._prefixes: tuple[str, ...] = ()
        # A key of another form, such as one of KEY_FUNCTION, is in no group: it may have the secret key of a session
        # before a colon.
        self.cache.engine.group_by(())

    @classmethod
    def find(
        cls,
        location: Any,
        params: Mapping[str, Any],
        variant: Hashable = None,
        make: Callable[[str, dict[str, Any]], Self] | None = None,
    ) -> Self:
        """Return the store of a LOCATION and the OPTIONS in ``params``. The first call makes it.

        Args:
            params: the second argument of a Django backend.
            variant: distinguishes stores with the same location and options.
            make: makes a store from a location and checked options; None for the class itself.

        Raises:
            TypeError, ValueError, FileUnusable, ImproperlyConfigured: if an option is unknown or wrong. The message
                names the option, the values that it accepts and the value that it got.
        """
        given = _options_in(params)
        try:
            asked = (
                location,
                variant,
                frozenset((option, type(value), _hashable(value)) for option, value in given.items()),
            )
            found: Self = _looked_up[asked]
            return found
        except (AttributeError, TypeError):
            # OPTIONS is not a dict, or contains a value that cannot be hashed: the checks report it.
            asked = None
        except KeyError:
            pass
        checked = _check(location, given, cls.options, params)
        identity = (location, variant, frozenset(checked.items()))
        store: Self | None = _stores.get(identity)
        if store is None:
            made = cls(location or "default", checked) if make is None else make(location, checked)
            # This is a single C call, so concurrent threads get the same store.
            store = _stores.setdefault(identity, made)
            for watch in tuple(watchers):
                watch(location, store)
        if asked is not None:
            _looked_up[asked] = store
        return store

    @property
    def settings(self) -> list[Setting]:
        """The options, for operators."""
        return self.options.settings(self._checked)

    def _make_cache(self, arguments: dict[str, Any]) -> Cache:
        return Cache(**arguments)

    def _make_codec(self, serializer: str) -> Codec:
        if serializer == "pickle":
            return Codec(Pickle(), self.keeps)
        if serializer == "reference":
            return Codec(None)
        return Codec(_imported(serializer), keep=is_bare)

    def _make_locks(self) -> Any:
        return module_of("timers", "locks").ProcessLocks(self.cache.engine.now)

    def group_keys(self, prefix: str) -> None:
        """Distinguish groups of the keys that begin with ``prefix``."""
        prefixes = self._prefixes
        if prefix not in prefixes and prefix.isascii() and len(prefixes) < MOST_PREFIXES:
            self._prefixes = prefixes = (*prefixes, prefix)
            self.cache.engine.group_by([each._replace(prefix=p + each.prefix) for p in prefixes for each in GROUPS])


@contextmanager
def naming(location: Any, params: Mapping[str, Any]) -> Iterator[None]:
    """Raise the errors of a wrong setting in this block as ImproperlyConfigured, with the name of the cache."""
    try:
        yield
    except (TypeError, ValueError, FileUnusable) as error:
        raise ImproperlyConfigured(f"Wrong setting of {cache_in_words(location, params)}: {error}.") from error


def _imported(name: str) -> Any:
    """Return the serializer with a dotted path."""
    try:
        serializer = import_string(name)
        if isinstance(serializer, type):
            serializer = serializer()
    except Exception as error:
        raise ValueError(f"SERIALIZER must be {SERIALIZER_TAKES}, not {options.shown(name)}: {error!r}") from error
    if not (callable(getattr(serializer, "dumps", None)) and callable(getattr(serializer, "loads", None))):
        raise TypeError(f"SERIALIZER must be {SERIALIZER_TAKES}, not {options.shown(name)}")
    return serializer


_stores: Final[dict[Any, Any]] = {}
"""The stores by location and checked options, including defaults."""

_looked_up: Final[dict[Any, Any]] = {}
"""The stores by location and given options with their types, since True equals 1. This avoids the checks."""

watchers: Final[list[Callable[[str, Store], None]]] = []
"""Functions that are called with the location and each new store, perhaps twice."""


def stores_with_locations() -> list[tuple[str, Store]]:
    """Return all stores, each with its LOCATION."""
    return [(location, store) for (location, *_), store in list(_stores.items())]


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((key, type(each), each) for key, each in value.items())
    return tuple(value) if isinstance(value, list) else value


def _options_in(params: Mapping[str, Any]) -> Any:
    """Return OPTIONS, with the options in lower case next to it, an old spelling that Django prefers."""
    given = params.get("OPTIONS", {})
    preferred = {option.upper(): params[option] for option in BESIDE_OPTIONS if option in params}
    return {**given, **preferred} if preferred and isinstance(given, Mapping) else given


BESIDE_OPTIONS: Final = ("max_entries", "cull_frequency")


def _check(location: Any, given: Any, table: Options, params: Mapping[str, Any]) -> dict[str, Any]:
    options.text("LOCATION", location)
    if not isinstance(given, Mapping):
        raise TypeError(f"OPTIONS must be a dict, not {options.shown(given)}")
    unknown = table.unknown(given, cache_in_words(location, params))
    if unknown is not None:
        raise ImproperlyConfigured(unknown)
    return table.checked(given)
