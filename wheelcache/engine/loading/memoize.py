"""``cache.memoize``: the results of functions, by their arguments."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial, wraps
from inspect import Parameter, Signature, isasyncgenfunction, iscoroutinefunction, isgeneratorfunction, signature
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, Protocol, Self, TypeVar, overload

from wheelcache.core import CacheAccess
from wheelcache.core.access import Serialized
from wheelcache.core.contract import MISSING
from wheelcache.core.python_core import Tally
from wheelcache.engine.codec import NOT_DECODED
from wheelcache.engine.keys import group_of
from wheelcache.engine.loading.loads import Loads
from wheelcache.engine.loading.memoized_methods import Instances, MemoizedMethod, is_in_class
from wheelcache.engine.loading.request import PREVIOUS, LoadPolicy, LoadRequest
from wheelcache.engine.stats import hit_ratio
from wheelcache.runtime.steps import Steps, as_it_is, drive, result, run_async

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class MemoStats:
    """The figures of one memoized function.

    Attributes:
        hits, misses: calls that found their value, and all other calls.
        hit_ratio: hits / (hits + misses), 0.0 to 1.0; 0.0 before the first call.
        calls: how often the function itself was called, by misses and in the background.
    """

    hits: int
    misses: int
    hit_ratio: float
    calls: int


class Memoized(Protocol[P, R_co]):
    """A function whose results are cached. For a method, ``Shop.price.cache_delete(shop, 7)`` does the same as
    ``shop.price.cache_delete(7)``."""

    @property
    def uncached(self) -> Callable[P, R_co]:
        """The function itself."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Return the value for these arguments, cached or computed."""

    @overload
    def __get__(self, instance: None, owner: type, /) -> Self: ...
    @overload
    def __get__(
        self: Memoized[Concatenate[Any, Q], R], instance: object, owner: type | None = None, /
    ) -> Memoized[Q, R]: ...

    def cache_delete(self, *args: Any, **kwargs: Any) -> bool:
        """Forget the value for these arguments. Return whether there was one."""

    def cache_clear(self) -> int:
        """Forget all values of this function. Return their number."""

    def cache_stats(self) -> MemoStats:
        """Return the figures since the function was decorated."""


class MemoizedOfClass(Memoized[..., R_co], Protocol[P, R_co]):
    """A memoized function whose first argument is a class. Type checkers ask ``__get__``, and not ``@classmethod``, for
    its type as an attribute of a class, so it binds the class there."""

    def __get__(self, instance: object, owner: type | None = None, /) -> Memoized[P, R_co]: ...  # type: ignore[override]


class Memoizer(Protocol):
    """A decorator that ``memoize`` returns."""

    @overload
    def __call__(self, function: Callable[Concatenate[type[T], P], R], /) -> MemoizedOfClass[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Memoized[P, R]: ...


class Group(NamedTuple):
    """A group of keys: all tuples whose first item is ``name``."""

    name: str
    drop: Callable[[str], int]

    def delete(self) -> int:
        """Delete every key of the group in O(1). Return the number of entries in memory, as ``len`` counts them."""
        return self.drop(self.name)


class Groups:
    """The groups of keys of one cache: the keys of a memoized function are tuples that begin with its name.

    Two functions may have the same name, so names are numbered.
    """

    __slots__ = ("_numbers", "_repeated")

    def __init__(self) -> None:
        self._numbers: dict[str, itertools.count[int]] = {}
        self._repeated: set[str] = set()

    def add(self, name: str) -> str:
        """Add a group, and return its name: ``name``, or ``name`` with a number if another group has that name.

        Another process may give a numbered name, or one with <locals>, <lambda> or <partial>, to another function.
        """
        # Threads may add groups at the same time. Nothing is kept of a numbered name: a view may define functions.
        number = next(self._numbers.setdefault(name, itertools.count(1)))
        if number == 1:
            return name
        self._repeated.add(name)
        return f"{name}#{number}"

    def is_portable(self, key: Any) -> bool:
        """Return whether ``key`` means the same in another process."""
        group = group_of(key)
        if group is None:
            return True
        is_repeated = group in self._repeated or group.rpartition("#")[0] in self._repeated
        return not (is_repeated or ("<" in group and group in self._numbers))


def memoizer(
    cache: CacheAccess,
    loads: Loads,
    add_group: Callable[[str], Group],
    ttl: Any,
    key: Callable[..., Hashable] | None,
    policy: LoadPolicy,
    tags_of: TagsOf | None,
) -> Memoizer:
    """Return the decorator that memoizes in ``cache``, with its loads and new groups of keys. See ``Cache.memoize``."""

    def decorate(function: Callable[..., Any]) -> Any:
        check_function(function)
        group = add_group(name_of(function))
        place = InMemory(cache, loads, group, ttl, policy, tags_of, receives_previous(function))
        return memoized_in(function, group.name, key, policy, lambda: place, at_first_call=False)[0]

    return decorator(decorate, ttl, "@cache.memoize")


TagsOf = Callable[..., tuple[str, ...]]
"""Returns the tags of a value, given the arguments of the call."""

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""The positional and the named arguments of a call."""

Wanted = LoadRequest | Steps | None
"""The request of a value that must be computed, or steps to it; None if there is a value."""


class Place(Protocol):
    """The place of the values of one memoized function.

    Attributes:
        group: the first item of its keys.
        find: returns the stored value of a key, or the default, if that takes one step.
        restore: returns the value of a stored object that is Serialized.
        get, aget: return the value of a request: see ``Loads``.
    """

    group: str
    find: Any
    restore: Any
    get: Any
    aget: Any

    def key(self, made: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the key of a call, given its arguments after an item for the group.

        Raises:
            TypeError: if the arguments cannot be a key.
        """

    def seek(
        self, made: Any, found: Any, loader: Callable[..., Any], call: Arguments, count: Callable[[bool], object]
    ) -> tuple[Any, Wanted]:
        """Return the value that was found, decoded, and None. If it must be computed or refreshed, return MISSING or
        that value, and the request of the value, or steps to it.

        Args:
            made: see ``key``.
            found: the result of ``find``, a stored object; MISSING if it was not called, or failed.
            loader: calls the function, and counts the call.
            count: receives whether a value was found, from steps; otherwise, the caller counts.
        """

    def delete(self, key: Any) -> bool:
        """Forget a value. Return whether there was one."""

    def clear(self) -> int:
        """Forget all values. Return their number, as far as it is known."""


class InMemory:
    """The values of one function in the memory of a cache: under tuples that begin with the same string."""

    restore: Callable[[Any], Any] = staticmethod(as_it_is)

    def __init__(
        self,
        cache: CacheAccess,
        loads: Loads,
        group: Group,
        ttl: Any,
        policy: LoadPolicy,
        tags_of: TagsOf | None,
        has_previous: bool,
    ) -> None:
        self._cache = cache
        self._loads = loads
        self._ttl = ttl
        self._policy = policy
        self._tags_of = tags_of
        self._has_previous = has_previous
        self.group = group.name
        self.find = cache.find
        self.get, self.aget = loads.get, loads.aget
        self.clear = group.delete

    def key(self, made: tuple[Any, ...]) -> tuple[Any, ...]:
        check_hashable(made, self.group)
        return made

    def seek(
        self, made: Any, found: Any, loader: Callable[..., Any], call: Arguments, count: Callable[[bool], object]
    ) -> tuple[Any, Wanted]:
        loads, ttl, policy = self._loads, self._ttl, self._policy
        if found is not MISSING and not loads.needs_refresh(made, found, ttl, policy):
            return found, None
        tags = () if self._tags_of is None else self._tags_of(*call[0], **call[1])
        try:
            return found, loads.request(made, loader, ttl, policy, tags, passes_previous=self._has_previous)
        except TypeError:
            # Raises a clearer error if the arguments cannot be a key.
            self.key(made)
            raise

    def delete(self, key: Any) -> bool:
        return self._cache.delete(key)


def memoized_in(
    function: Callable[..., Any],
    name: str,
    key: Callable[..., Hashable] | None,
    policy: LoadPolicy,
    find_place: Callable[[], Place],
    prefix_of_call: Callable[[], tuple[Any, ...]] | None = None,
    *,
    at_first_call: bool,
) -> tuple[Any, Callable[[], object]]:
    """Return ``function`` memoized, and a function that forgets its place.

    Args:
        name: the name of the function, for errors.
        key: returns the part of the key that stands for the arguments.
        find_place: returns the place of the values. It is called again after the place was forgotten.
        prefix_of_call: returns parts of the key that depend on the running code.
        at_first_call: whether the place is found at the first call only.
    """
    if key is not None:
        parts_of: MakeParts = lambda args, kwargs: (key(*args, **kwargs),)  # noqa: E731
        arity = -1
    else:
        as_called = signature_of(function, name, has_previous=receives_previous(function))
        # If all arguments are given by position, they make the key as they are, which saves 150 ns.
        parts_of, arity = parts_by_arguments(as_called, name), arity_of(as_called)
    if prefix_of_call is not None:
        of_arguments, arity = parts_of, -1
        parts_of = lambda args, kwargs: (*prefix_of_call(), *of_arguments(args, kwargs))  # noqa: E731
    instances = Instances(name) if key is None and is_in_class(function) else None
    always_looks = policy.refresh_ahead is not None
    hits, misses, calls = Tally(), Tally(), Tally()
    # ``next(hit)`` counts a hit without looking up an attribute.
    hit = hits.ticks
    lock = threading.Lock()
    place: Place | None = None
    find: Callable[[Any, Any], Any] = find_nothing
    restore: Callable[[Any], Any] = as_it_is
    get: Callable[..., Any] = find_nothing
    aget: Callable[..., Any] = find_nothing
    group = ""

    def found_place() -> Place:
        nonlocal place, find, restore, get, aget, group
        with lock:
            if place is None:
                new = find_place()
                find, restore, get, aget, group, place = new.find, new.restore, new.get, new.aget, new.group, new
            return place

    if not at_first_call:
        found_place()

    def forget_place() -> None:
        nonlocal place, find
        with lock:
            place, find = None, find_nothing

    def load(*args: Any, **kwargs: Any) -> Any:
        next(calls.ticks)
        return function(*args, **kwargs)

    def count(is_hit: bool) -> None:
        next(hit if is_hit else misses.ticks)

    def seek(made: Any, found: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Wanted]:
        here = place or found_place()
        found, wanted = here.seek(made, found, partial(load, *args, **kwargs), (args, kwargs), count)
        if wanted is None:
            next(hit)
        elif found is MISSING and instances is not None:
            instances.missed(args)
        return found, wanted

    memoized: Any
    if is_async(function):

        @wraps(function)
        async def memoized(*args: Any, **kwargs: Any) -> Any:
            made = (group, *args) if not kwargs and len(args) == arity else (group, *parts_of(args, kwargs))
            try:
                found = find(made, MISSING)
            except TypeError:
                # The arguments cannot be a key. ``seek`` raises an error that explains this.
                found = MISSING
            if found is not MISSING and not always_looks:
                if type(found) is not Serialized:
                    next(hit)
                    return found
                try:
                    found = restore(found)
                    next(hit)
                    return found
                except NOT_DECODED:
                    # ``seek`` handles this.
                    pass
            found, wanted = seek(made, found, args, kwargs)
            if isinstance(wanted, LoadRequest):
                try:
                    return await aget(wanted, found)
                finally:
                    count(wanted.is_hit)
            return found if wanted is None else await run_async(wanted)

    else:

        @wraps(function)
        def memoized(*args: Any, **kwargs: Any) -> Any:
            made = (group, *args) if not kwargs and len(args) == arity else (group, *parts_of(args, kwargs))
            try:
                found = find(made, MISSING)
            except TypeError:
                found = MISSING
            if found is not MISSING and not always_looks:
                if type(found) is not Serialized:
                    next(hit)
                    return found
                try:
                    found = restore(found)
                    next(hit)
                    return found
                except NOT_DECODED:
                    pass
            found, wanted = seek(made, found, args, kwargs)
            if isinstance(wanted, LoadRequest):
                # Called here, as the steps are: every call between two functions counts towards the limit of recursion.
                try:
                    return get(wanted, found)
                finally:
                    next(hit if wanted.is_hit else misses.ticks)
            return found if wanted is None else result(drive(wanted))

    def cache_delete(*args: Any, **kwargs: Any) -> bool:
        here = found_place()
        return here.delete(here.key((here.group, *parts_of(args, kwargs))))

    def cache_stats() -> MemoStats:
        with lock:
            hit_count, miss_count = hits.read(), misses.read()
            return MemoStats(hit_count, miss_count, hit_ratio(hit_count, miss_count), calls.read())

    memoized.uncached = function
    memoized.cache_delete = cache_delete
    memoized.cache_clear = lambda: found_place().clear()
    memoized.cache_stats = cache_stats
    return MemoizedMethod.of(memoized) if is_in_class(function) else memoized, forget_place


def find_nothing(key: Any, default: Any) -> Any:
    """Return ``default``: values are not found in one step."""
    return default


def check_function(function: Any) -> None:
    """Check that ``function`` can be memoized.

    Raises:
        TypeError: if ``function`` is not a function, or is a generator function.
    """
    if isgeneratorfunction(function) or isasyncgenfunction(function):
        raise TypeError(f"memoize must decorate a function with reusable results, not the generator {function!r}")
    if isinstance(function, (staticmethod, classmethod, property)) or not callable(function):
        raise TypeError(f"memoize must decorate a function, below any other decorators, not {function!r}")


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether ``function`` returns coroutines: a coroutine function, or an object with an async ``__call__``."""
    while isinstance(function, partial):
        function = function.func
    return iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__)


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a memoized function, for keys and messages."""
    # A partial and an object with __call__ have no name of their own.
    name = getattr(function, "__qualname__", f"<{type(function).__qualname__}>")
    return f"{function.__module__}.{name}()"


_BY_POSITION: Final = {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}
_BY_NAME: Final = {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}

MakeParts = Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, ...]]


def parts_by_arguments(as_called: Signature, name: str) -> MakeParts:
    """Return a function that makes tuples of every argument in the order of the signature, with defaults.

    It avoids ``Signature.bind``, which takes 3 us or more, unless the function accepts any number of arguments, or the
    call does not fit the signature. In the latter case, ``bind`` raises the error, which contains ``name``.
    """
    parameters, bind = list(as_called.parameters.values()), as_called.bind
    kinds = [each.kind for each in parameters]
    defaults = {each.name: each.default for each in parameters if each.kind is not Parameter.VAR_KEYWORD}
    by_position = sum(kind in _BY_POSITION for kind in kinds)
    # For each possible number of positional arguments, the remaining parameters with their defaults.
    left = [dict(list(defaults.items())[count:]) for count in range(by_position + 1)]
    by_name = {each.name for each in parameters if each.kind in _BY_NAME}
    takes_positions = Parameter.VAR_POSITIONAL in kinds
    takes_names = Parameter.VAR_KEYWORD in kinds
    takes_only_positions = kinds == [Parameter.VAR_POSITIONAL]

    def make_parts(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        if takes_only_positions and not kwargs:
            return (args,)
        if not takes_positions and len(args) <= by_position:
            values = left[len(args)].copy()
            others = []
            for each, value in kwargs.items():
                if each in by_name and each in values:
                    values[each] = value
                else:
                    others.append((each, value))
            # By identity: a value may claim to be equal to anything.
            if all(value is not Parameter.empty for value in values.values()):
                if not others and not takes_names:
                    return (*args, *values.values())
                if takes_names and all(each not in by_name for each, _ in others):
                    # The names differ, so sorting never compares values.
                    return (*args, *values.values(), tuple(sorted(others)))
        try:
            bound = bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
        bound.apply_defaults()
        pairs = zip(bound.arguments.values(), kinds, strict=True)
        return tuple(
            [tuple(sorted(value.items())) if kind is Parameter.VAR_KEYWORD else value for value, kind in pairs]
        )

    return make_parts


def signature_of(function: Callable[..., Any], name: str, *, has_previous: bool = False) -> Signature:
    """Return the signature of a function without the parameter of the previous value, which callers do not pass.

    Args:
        has_previous: the result of ``receives_previous``.
    """
    try:
        found = signature(function)
    except ValueError as error:
        raise TypeError(f"the parameters of {name} are unknown ({error}); give memoize a key=") from error
    if not has_previous:
        return found
    return found.replace(parameters=[each for each in found.parameters.values() if each.name != PREVIOUS])


def receives_previous(function: Callable[..., Any]) -> bool:
    """Return whether a memoized function receives the previous value: it has a keyword-only parameter ``previous``.

    Any other parameter of that name is an argument of the callers.
    """
    try:
        parameter = signature(function).parameters.get(PREVIOUS)
    except ValueError:
        return False
    return parameter is not None and parameter.kind is Parameter.KEYWORD_ONLY


def decorator(decorate: Callable[[Any], Any], ttl: Any, spelled: str) -> Callable[[Any], Any]:
    """Return ``decorate``, with a check for ``@memoize`` without parentheses: ``ttl`` is then the function to decorate.

    Args:
        spelled: the name of the decorator, for the error.

    Raises:
        TypeError: if ``ttl`` is a function that does not accept one argument. A function that accepts one may be a TTL,
            so in this case, the result raises the error if it is called with anything but one function.
    """
    if not callable(ttl):
        return decorate
    wrong = f"memoize is called before it decorates: {spelled}(), not {spelled} on {ttl!r}"
    try:
        signature(ttl).bind(None)
    except TypeError as error:
        raise TypeError(wrong) from error
    except ValueError:
        # A builtin without a signature.
        pass

    def checked(*functions: Any, **named: Any) -> Any:
        if named or len(functions) != 1 or not callable(functions[0]):
            raise TypeError(wrong)
        return decorate(functions[0])

    return checked


def arity_of(as_called: Signature) -> int:
    """Return the number of arguments of a function if all can be given by position; otherwise -1."""
    kinds = [each.kind for each in as_called.parameters.values()]
    return len(kinds) if _BY_POSITION.issuperset(kinds) else -1


def check_hashable(made: tuple[Any, ...], name: str) -> None:
    """Raise a TypeError that contains ``name`` if the arguments of a call cannot be a key."""
    try:
        hash(made)
    except TypeError as error:
        raise TypeError(f"the arguments of {name} cannot be a key ({error}); give memoize a key=") from error
