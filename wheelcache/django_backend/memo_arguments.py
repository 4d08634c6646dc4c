"""The arguments of memoized functions as parts of a key, and the errors for arguments that cannot be part of one."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable
from datetime import datetime, time, timezone
from enum import Enum
from operator import is_
from types import BuiltinFunctionType, FunctionType, UnionType
from typing import Any, Final, Union, get_args, get_origin
from zoneinfo import ZoneInfo

from django.db import DEFAULT_DB_ALIAS
from django.db.models import Model, QuerySet
from django.db.models.manager import BaseManager
from django.http import HttpRequest
from django.utils.functional import Promise
from django.utils.safestring import SafeString

from wheelcache.engine.codec import ATOMS
from wheelcache.engine.options import shown

USE: Final = "memoize a function of the values that it uses, or give memoize a key="

UNUSABLE: Final[dict[type, str]] = {
    HttpRequest: "a request is different for every call",
    QuerySet: "a query set is different for every call, unless it has been evaluated",
    BaseManager: "a manager is different for every call",
}
"""The classes of arguments under which a value would never be found again, with the reasons."""

PLAIN_PARTS: Final = frozenset((str, int, float, bool, type(None)))
"""The types of most arguments, which are parts of a key as they are."""

EXACT: Final = ATOMS | {range, timezone, SafeString}
"""The types whose ``repr`` contains the whole value."""


def check_parameters(function: Callable[..., Any], name: str) -> None:
    """Check that no parameter has a name or an annotation which shows that it cannot be part of a key.

    An evaluated query set can be, so an argument with the annotation ``QuerySet`` is checked at each call.

    Raises:
        TypeError: if there is such a parameter. The message names it.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError as error:
        raise TypeError(f"the parameters of {name} are unknown ({error}); give memoize a key=") from error
    for parameter in parameters:
        kinds = _annotated_classes(function, parameter.annotation)
        for unusable, reason in UNUSABLE.items():
            is_request = unusable is HttpRequest and parameter.name == "request" and not kinds
            if is_request or (unusable is not QuerySet and any(issubclass(kind, unusable) for kind in kinds)):
                raise TypeError(f"{name} takes {parameter.name!r}, and {reason}; {USE}")


def _annotated_classes(function: Callable[..., Any], annotation: Any) -> list[type]:
    """Return the classes of an annotation, as far as they are known when the function is decorated."""
    if annotation is inspect.Parameter.empty:
        return []
    if isinstance(annotation, str):
        # Names that are imported only for type checkers are missing.
        names = getattr(inspect.unwrap(function), "__globals__", {})
        annotation = names.get(annotation)
    is_union = get_origin(annotation) in (Union, UnionType)
    kinds = get_args(annotation) if is_union else (annotation,)
    return [kind for each in kinds if isinstance(kind := get_origin(each) or each, type)]


def key_part(value: Any, name: str) -> Any:
    """Return ``value`` as part of a key: a model instance as its model, database and primary key, an evaluated query
    set as its rows, a lazy text as the text, and a frozen dataclass that contains such objects as its fields.

    Raises:
        TypeError: if ``value`` is different for every call. The message contains ``name``, the name of the function.
    """
    if type(value) in PLAIN_PARTS:
        return value
    if isinstance(value, Model):
        if value.pk is None:
            raise TypeError(f"an argument of {name} has no primary key yet: {shown(value)}; {USE}")
        label = value._meta.concrete_model._meta.label_lower  # type: ignore[union-attr]
        return (label, value._state.db or DEFAULT_DB_ALIAS, value.pk)
    if isinstance(value, QuerySet) and value._result_cache is not None:
        return tuple(key_part(row, name) for row in value)
    for unusable, reason in UNUSABLE.items():
        if isinstance(value, unusable):
            raise TypeError(f"an argument of {name} is a {type(value).__name__}, and {reason}; {USE}")
    if isinstance(value, Promise):
        return str(value)
    if isinstance(value, tuple):
        parts = tuple(key_part(item, name) for item in value)
        return value if type(value) is tuple and all(map(is_, parts, value)) else parts
    if isinstance(value, frozenset):
        return frozenset(key_part(item, name) for item in value)
    fields = _frozen_fields(value)
    if fields is not None and (parts := key_part(fields, name)) is not fields:
        return (type(value), *parts)
    return value


def text_of(part: Any, name: str) -> str:
    """Return an exact text of a part of a key: the same in every process, and different for different parts.

    Raises:
        TypeError: if ``part`` has no such text. The message contains ``name``, the name of the function.
    """
    kind = type(part)
    if _is_exact(part):
        return repr(part)
    if kind is tuple:
        # The commas between texts in quotes keep the items apart.
        return f"{[text_of(item, name) for item in part]}"
    if kind is frozenset:
        return f"frozenset{sorted(text_of(item, name) for item in part)}"
    if isinstance(part, (type, FunctionType, BuiltinFunctionType)) and (path := _path_of(part)):
        return path
    if path := _path_of(kind):
        if isinstance(part, Enum):
            return f"{path}({text_of(part.value, name)})"
        if (fields := _frozen_fields(part)) is not None:
            return f"{path}{text_of(fields, name)}"
    raise TypeError(f"an argument of {name} has no exact text that is the same in every process: {shown(part)}; {USE}")


def _is_exact(value: Any) -> bool:
    """Return whether ``repr(value)`` contains the whole value."""
    kind = type(value)
    if kind is datetime or kind is time:
        return _is_exact(value.tzinfo)
    if kind is ZoneInfo:
        # One that was read from a file has no name.
        return value.key is not None
    return kind in EXACT


def _frozen_fields(value: Any) -> tuple[Any, ...] | None:
    """Return the fields by which a frozen dataclass is compared; None if ``value`` is no such object."""
    kind = type(value)
    # A subclass that is no dataclass itself inherits the comparison.
    owner = next((each for each in kind.__mro__ if "__dataclass_params__" in vars(each)), kind)
    params = vars(owner).get("__dataclass_params__")
    if params is None or not (params.frozen and params.eq) or kind.__eq__ is not owner.__eq__:
        return None
    return tuple(getattr(value, each.name) for each in dataclasses.fields(value) if each.compare)


def _path_of(thing: Any) -> str:
    """Return the name under which every process can import a class or function; empty if there is none."""
    module = str(thing.__module__)
    found: Any = None if module == "__main__" else sys.modules.get(module)
    for name in thing.__qualname__.split("."):
        found = getattr(found, name, None)
    return f"{module}.{thing.__qualname__}" if found is thing else ""
