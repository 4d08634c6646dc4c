"""The keys of the functions that ``Cache.cached`` and ``Cache.memoize`` decorate.

The keys of ``cached`` are Flask-Caching's, since code may delete them by name. The key of a memoized call consists of
the name of the function, a digest of the arguments, and versions. As in Flask-Caching, arguments are distinguished by
their ``repr``, and an instance by its ``__caching_id__()``, if it has one. Forgetting all values of a function, or of
one of its instances, changes a version, which takes O(1). Values under older versions are no longer found, and expire.
Unlike in Flask-Caching, a key costs only one digest, and one look-up for each version: the signature is inspected once.

Several functions may have one name: see ``FunctionNumbers``.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, MutableMapping
from contextlib import suppress
from functools import partial
from secrets import token_hex
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final
from weakref import WeakKeyDictionary

from flask import request
from flask_caching import Cache
from flask_caching.utils import function_namespace, get_id, null_control

from wheelcache.engine.loading.memoize import Groups, arity_of, parts_by_arguments, receives_previous, signature_of
from wheelcache.engine.loading.memoized_methods import is_in_class
from wheelcache.engine.options import shown
from wheelcache.flask_backend.engine_backend import EngineBackend

DIGEST_LENGTH: Final = 32
"""Hexadecimal digits, for 128 bits."""

Versions = tuple[tuple[str, str], ...]
"""Pairs of the key of a version's entry and the version, which is part of another key."""


MakeKey = Callable[[EngineBackend, tuple[Any, ...], dict[str, Any]], tuple[Any, Versions]]
"""Returns the key of a call of a function, and the versions in it."""


def view_keys(cache: Cache, theirs: Any, given: dict[str, Any]) -> MakeKey:
    """Return a function that makes a key for each call of a function that ``cached`` decorates.

    Args:
        theirs: the function, decorated by Flask-Caching.
        given: the arguments of the decorator.
    """
    make, prefix, source_check = given["make_cache_key"], given["key_prefix"], given["source_check"]
    if callable(make):
        return lambda backend, args, kwargs: (make(*args, **kwargs), ())
    make_by_default = theirs.make_cache_key
    is_path = isinstance(prefix, str) and "%s" in prefix and not given["query_string"]
    find_request = request._get_current_object  # type: ignore[attr-defined]

    def make_key(backend: EngineBackend, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Versions]:
        make = theirs.make_cache_key
        checks_source = cache.source_check if source_check is None else source_check
        if is_path and not checks_source and make is make_by_default:
            # This makes the same key without inspecting the signature of the function.
            return prefix % find_request().path, ()
        return make(*args, use_request=True, **kwargs), ()

    return make_key


SHOW_ADDRESS: Final[frozenset[Any]] = frozenset((object.__repr__, FunctionType.__repr__, MethodType.__repr__))


def with_address(values: Iterable[Any]) -> Any:
    """Return one of ``values`` whose ``repr`` contains an address, which means another object in another process; None
    without any."""
    for value in values:
        if isinstance(value, tuple | list | set | frozenset):
            found = with_address(value)
        elif isinstance(value, dict):
            found = with_address((*value, *value.values()))
        elif isinstance(value, partial):
            found = with_address((value.func, *value.args, *value.keywords.values()))
        else:
            found = value if type(value).__repr__ in SHOW_ADDRESS else None
        if found is not None:
            return found
    return None


def of_process() -> str:
    """Return a text that no other process has."""
    return f"{_PROGRAM} {os.getpid()}"


_PROGRAM: Final = token_hex(8)
"""Distinguishes this process and its forks from others that get the same number."""


class FunctionNumbers:
    """Numbers the functions of one cache that have the same name: lambdas, the functions that a factory makes, and the
    methods of local classes.

    The first one has no number, so its keys are those of a function with a unique name. Processes that share values
    number the functions alike if they define them in the same order, as modules do.

    Code that runs again, such as a view or a module that is reloaded, defines functions again. Without variables of the
    enclosing call, these have the number of the earlier one: of a lambda and in a module, if they have the same code;
    within a function, also with other code, as in Flask-Caching, whose ``source_check`` distinguishes them.
    """

    def __init__(self) -> None:
        self._names = Groups()
        self._by_function: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._by_code: defaultdict[str, WeakKeyDictionary[CodeType, str]] = defaultdict(WeakKeyDictionary)
        self._nested: dict[str, str] = {}
        self._lock = threading.Lock()

    def add(self, function: Any) -> str:
        """Return the number of a function as a part of keys; an empty string for the first one of its name."""
        if type(function) is MethodType or not hasattr(function, "__qualname__"):
            # The object of a method is a part of its keys, and other objects without a name cannot be memoized.
            return ""
        # As ``function_namespace`` makes it.
        name = f"{function.__module__}.{function.__qualname__}".translate(null_control)
        with self._lock:
            number = self._known(function)
            if number is None:
                number = self._number(function, name)
                with suppress(TypeError):
                    self._by_function[function] = number
        return number

    def _known(self, function: Any) -> str | None:
        # An object that wraps a function may have no hash or no weak references.
        with suppress(TypeError):
            return self._by_function.get(function)
        return None

    def _number(self, function: Any, name: str) -> str:
        # Other types have a state that is not seen here: a partial with a name, or a decorator of wrapt.
        is_local = "<locals>" in function.__qualname__
        is_plain = type(function) is FunctionType and function.__closure__ is None
        if not is_plain or (is_local and is_in_class(function)):
            return self._new(name)
        known: MutableMapping[Any, str] = self._nested
        key: Any = name
        if not is_local or function.__name__ == "<lambda>":
            known, key = self._by_code[name], function.__code__
        number = known.get(key)
        if number is None:
            number = known[key] = self._new(name)
        return number

    def _new(self, name: str) -> str:
        return self._names.add(name).removeprefix(name)

    def find(self, function: Any) -> str:
        """Return the number of a function, given itself or what a decorator has made of it."""
        return self._known(getattr(function, "uncached", function)) or ""


class MemoKeys:
    """The keys of a function that ``memoize`` decorates.

    Args:
        cache: has the defaults of the arguments. They may change until the function is called.
        given: the arguments of the decorator.
        number: see ``FunctionNumbers``.
    """

    def __init__(self, cache: Cache, function: Callable[..., Any], given: dict[str, Any], number: str) -> None:
        self._cache = cache
        self._function = function
        self._number = number
        bound_to = getattr(function, "__self__", None)
        self._bound_to = None if isinstance(bound_to, ModuleType) else bound_to
        self._make_name = given["make_name"] if callable(given["make_name"]) else None
        self._hash_method = given["hash_method"]
        self._source_check = given["source_check"]
        self._ignored = frozenset(given["args_to_ignore"] or ())
        self._name = ""
        self._source = ""

    def make(self, backend: EngineBackend, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, Versions]:
        """Return the key of a call, and its versions.

        Raises:
            TypeError: if the arguments do not fit the function, or its signature is unknown, or machines share the
                values and the ``repr`` of an argument is its address.
            ValueError: if the first argument of a class method is missing.
        """
        if not self._name:
            self._inspect(args)
        values = args if not kwargs and len(args) == self._arity else self._values(args, kwargs)
        is_shared = backend.has_store or backend.engine.has_shared_entries
        address = with_address(values[1:] if self._owner else values) if is_shared else None
        if address is not None and backend.has_store:
            raise TypeError(
                f"an argument of {self._name} has no text that is the same in every process: {shown(address)}; memoize "
                "a function of the values that it uses, or give its class a __repr__"
            )
        version = backend.version(self._version_key)
        versions: Versions = ((self._version_key, version),)
        if self._bound_to is not None:
            values = (get_id(self._bound_to), *values)
        if self._owner:
            if self._owner == "cls" and not (args and inspect.isclass(args[0])):
                # This raises the error.
                function_namespace(self._function, args)
            identity = get_id(values[0])
            values = (identity, *values[1:])
            if self._owner == "self":
                of_instance = self._cache._memvname(f"{self._name}{self._number}.{identity.translate(null_control)}")
                version_of_instance = backend.version(of_instance)
                versions = (*versions, (of_instance, version_of_instance))
                version += version_of_instance
        cache = self._cache
        text = f"{self._name if self._make_name is None else self._make_name(self._name)}{values}"
        if cache._get_source_check(self._source_check):
            text += self._source_of_function()
        if address is not None:
            # The workers of a machine share the entries, but not the objects.
            text += of_process()
        digest = cache._get_hash_method(self._hash_method)(text.encode(errors="surrogatepass")).hexdigest()
        # The colon ends the name of the group of keys, for the figures.
        return f"{self._name}:{self._number}{digest[:DIGEST_LENGTH]}{version}", versions

    def _inspect(self, args: tuple[Any, ...]) -> None:
        """Inspect the signature at the first call. Until then, a function that cannot be inspected is not an error."""
        as_called = signature_of(self._function, "", has_previous=receives_previous(self._function))
        parameters = list(as_called.parameters.values())
        names = [each.name for each in parameters]
        first = names[0] if names and parameters[0].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD else ""
        self._owner = first if first in ("self", "cls") and first not in self._ignored else ""
        self._ignored_places = [place for place, name in enumerate(names) if name in self._ignored]
        takes_names = bool(parameters) and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD
        self._names_at = len(parameters) - 1 if takes_names and self._ignored else None
        self._arity = -1 if self._ignored else arity_of(as_called)
        self._by_arguments = parts_by_arguments(as_called, "")
        name, _ = function_namespace(self._function, args)
        self._version_key = self._cache._memvname(name + self._number)
        # Set last, since other threads check it without a lock.
        self._name = name

    def _values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Return the values of all parameters, in the order of the signature; None for ignored ones."""
        try:
            values = list(self._by_arguments(args, kwargs))
        except TypeError:
            # The call does not fit the signature. Flask-Caching makes a key with None for missing arguments.
            given, named = self._cache._memoize_kwargs_to_args(self._function, *args, **kwargs)
            values = list(self._by_arguments((args[0], *given[1:]) if self._owner else given, named))
        for place in self._ignored_places:
            values[place] = None
        if self._names_at is not None:
            values[self._names_at] = [pair for pair in values[self._names_at] if pair[0] not in self._ignored]
        return tuple(values)

    def _source_of_function(self) -> str:
        if not self._source:
            self._source = inspect.getsource(self._function)
        return self._source
