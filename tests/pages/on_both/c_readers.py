"""Ways to read the cookies and the headers of a visitor, of which some call no method in Python.

``COOKIES`` and ``HEADERS`` map names to functions that get a function which accesses the attribute, such as
``lambda: request.COOKIES``, and return a text with the theme of the visitor: the value of the cookie ``theme``, and of
the header ``X-Theme``.
"""

import copy
import ctypes
import json
import operator
import string
from collections import ChainMap, defaultdict
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlencode

import msgspec
import orjson
import pydantic
import pydantic_core


@dataclass
class Prefs:
    # Werkzeug keeps lists.
    theme: str | list[str] = "none"


@dataclass
class Headers:
    HTTP_X_THEME: str = "none"


class Visit:
    """An object whose attribute code in C reads."""

    def __init__(self, prefs):
        self.prefs = prefs


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(from_attributes=True)

    prefs: Prefs


def next_items(found):
    """Read all items as most libraries in C do."""
    items, position = [], ctypes.c_ssize_t(0)
    key, value = ctypes.py_object(), ctypes.py_object()
    pointers = map(ctypes.byref, (position, key, value))
    call = partial(ctypes.pythonapi.PyDict_Next, ctypes.py_object(found), *pointers)
    while call():
        items.append((key.value, value.value))
    return str(items)


def get_item(found, name):
    """Read one item as they do."""
    get = ctypes.pythonapi.PyDict_GetItem
    get.restype = ctypes.c_void_p
    place = get(ctypes.py_object(found), ctypes.py_object(name))
    return str(ctypes.cast(place, ctypes.py_object).value)


def match(found):
    match found:
        case {"theme": str() as theme}:
            return theme
    return None


def if_true(found):
    if found:
        return orjson.dumps(found, default=str)
    return None


def if_attribute_is_true(visit):
    if visit.prefs:
        return orjson.dumps(visit.prefs, default=str)
    return None


def after_a_method(found):
    found.get("color")
    return orjson.dumps(found)


IN_C = {
    "PyDict_Next": lambda read: next_items(read()),
    "orjson": lambda read: orjson.dumps(read(), default=str),
    "orjson, nested": lambda read: orjson.dumps({"visits": [{"cookies": read()}]}, default=str),
    "msgspec, nested": lambda read: msgspec.json.encode([Visit(read()).prefs], enc_hook=str),
    "pydantic_core": lambda read: pydantic_core.to_json(read(), fallback=str),
    "a method of dict": lambda read: dict.__repr__(read()),
    "or": lambda read: orjson.dumps(read() or {}, default=str),
    "if": lambda read: if_true(read()),
    "if, of an object": lambda read: if_attribute_is_true(Visit(read())),
    "dict": lambda read: str(dict(read())),
}
COOKIES = {
    **IN_C,
    "PyDict_GetItem": lambda read: get_item(read(), "theme"),
    "after a method": lambda read: after_a_method(read()),
    "msgspec, convert": lambda read: str(msgspec.convert(read(), Prefs)),
    "pydantic, dataclass": lambda read: str(pydantic.TypeAdapter(Prefs).validate_python(read())),
    "pydantic, attribute": lambda read: str(Model.model_validate(Visit(read()))),
    "copy": lambda read: str(copy.copy(read())),
    "json": lambda read: json.dumps(read()),
    "match": lambda read: str(match(read())),
    "itemgetter": lambda read: str(operator.itemgetter("theme")(read())),
    "format_map": lambda read: "{theme}".format_map(read()),
    "%": lambda read: "%(theme)s" % read(),  # noqa: UP031
    "Template": lambda read: string.Template("$theme").substitute(read()),
    "ChainMap": lambda read: str(ChainMap({}, read())["theme"]),
    "urlencode": lambda read: urlencode(read()),
    "the same class": lambda read: str(type(read())(read())),
}
HEADERS = {
    **IN_C,
    "PyDict_GetItem": lambda read: get_item(read(), "HTTP_X_THEME"),
    "msgspec, convert": lambda read: str(msgspec.convert(read(), Headers)),
}
READERS = [*(("cookies", how) for how in COOKIES), *(("headers", how) for how in HEADERS)]
# After a method in Python, only a value in the page shows that code in C has read it, unless the value is short.
THEMES = defaultdict(lambda: ("dark", "light"), {"after a method": ("dark-blue", "light-red")})


def shown(part, how, read):
    """Return the text of a page that shows what it has read."""
    text = {"cookies": COOKIES, "headers": HEADERS}[part][how](read)
    return text.decode() if isinstance(text, bytes) else text
