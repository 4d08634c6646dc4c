"""The arguments of memoized functions as parts of a key, and the errors for arguments that cannot be part of one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from django.db.models import Model, QuerySet
from django.db.models.manager import BaseManager
from django.http import HttpRequest
from django.utils.functional import Promise

USE: Final = "memoize a function of the values that it uses, or give memoize a key="

UNUSABLE: Final[dict[type, str]] = {
    HttpRequest: "a request is different for every call",
    QuerySet: "a query set is different for every call, unless it has been evaluated",
    BaseManager: "a manager is different for every call",
}
"""The classes of arguments under which a value would never be found again, with the reasons."""

SHOWS_ADDRESS: Final[Any] = object.__repr__


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
    """Return ``value`` as part of a key: a model instance as its model and primary key, an evaluated query set as its
    rows, and a lazy text as the text.

    Raises:
        TypeError: if ``value`` is different for every call. The message contains ``name``, the name of the function.
    """
    if type(value) in (str, int, float, bool, type(None)):
        return value
    if isinstance(value, Model):
        if value.pk is None:
            raise TypeError(f"an argument of {name} has no primary key yet: {value!r}; {USE}")
        return (value._meta.concrete_model._meta.label_lower, value.pk)  # type: ignore[union-attr]
    if isinstance(value, QuerySet) and value._result_cache is not None:
        return tuple(key_part(row, name) for row in value)
    for unusable, reason in UNUSABLE.items():
        if isinstance(value, unusable):
            raise TypeError(f"an argument of {name} is a {type(value).__name__}, and {reason}; {USE}")
    if isinstance(value, Promise):
        return str(value)
    if isinstance(value, tuple):
        return tuple(key_part(item, name) for item in value)
    if isinstance(value, frozenset):
        return frozenset(key_part(item, name) for item in value)
    return value


def text_of(parts: Any, name: str) -> str:
    """Return the text that distinguishes ``parts`` of a key, the same in every process.

    Raises:
        TypeError: if an object has no text but its address. The message contains ``name``, the name of the function.
    """
    texts = []
    for part in parts:
        if isinstance(part, tuple | frozenset):
            texts.append(text_of(part, name))
        elif type(part).__repr__ is SHOWS_ADDRESS:
            raise TypeError(f"an argument of {name} has no text that is the same in every process: {part!r}; {USE}")
        else:
            texts.append(repr(part))
    # A set has no order. The name of its type, and the commas between texts in quotes, keep it apart from a tuple.
    return f"frozenset{sorted(texts)}" if isinstance(parts, frozenset) else f"{texts}"
