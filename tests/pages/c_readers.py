"""Ways to read the cookies and the headers of a visitor, of which some call no method in Python.

``COOKIES`` and ``HEADERS`` map names to functions that get a function which accesses the attribute, such as
``lambda: request.COOKIES``, and return a text with the theme of the visitor: the value of the cookie ``theme``, and of
the header ``X-Theme``.
"""

import copy
import ctypes
import json
import operator
import pickle
import string
from collections import ChainMap
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote, urlencode

import msgspec
import orjson
import pydantic
import pydantic_core
import rapidjson
import ujson


@dataclass
class Prefs:
    # Werkzeug keeps lists.
    theme: str | list[str] = "none"


@dataclass
class Headers:
    HTTP_X_THEME: str = "none"


class Page(msgspec.Struct):
    prefs: Prefs


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


def by_exec(found):
    read = {}
    exec("theme = found['theme']\nnames = {**found}", {"found": found}, read)
    return read["theme"]


def read_in_function(found):
    if found:
        return orjson.dumps(found, default=str)
    return None


def read_in_method(visit):
    if visit.prefs:
        return orjson.dumps(visit.prefs, default=str)
    return None


def read_after_a_method(found):
    found.get("color")
    return orjson.dumps(found)


IN_C = {
    "PyDict_Next": lambda read: next_items(read()),
    "orjson": lambda read: orjson.dumps(read(), default=str),
    "orjson, nested": lambda read: orjson.dumps({"visits": [{"cookies": read()}]}, default=str),
    "msgspec, JSON": lambda read: msgspec.json.encode(read(), enc_hook=str),
    "msgspec, nested": lambda read: msgspec.json.encode([Visit(read()).prefs], enc_hook=str),
    "ujson": lambda read: ujson.dumps(read(), default=str),
    "rapidjson": lambda read: rapidjson.dumps(read(), default=str),
    "pydantic_core": lambda read: pydantic_core.to_json(read(), fallback=str),
    "a method of dict": lambda read: dict.__repr__(read()),
    "or": lambda read: orjson.dumps(read() or {}, default=str),
    "if": lambda read: read_in_function(read()),
    "if, of an object": lambda read: read_in_method(Visit(read())),
    "attribute of an object": lambda read: orjson.dumps(vars(Visit(read())), default=str),
}
COOKIES = {
    **IN_C,
    "PyDict_GetItem": lambda read: get_item(read(), "theme"),
    "after a method": lambda read: read_after_a_method(read()),
    "msgspec, convert": lambda read: str(msgspec.convert(read(), Prefs)),
    "msgspec, convert nested": lambda read: str(msgspec.convert({"prefs": read()}, Page)),
    "pydantic, dataclass": lambda read: str(pydantic.TypeAdapter(Prefs).validate_python(read())),
    "pydantic, attribute": lambda read: str(Model.model_validate(Visit(read()))),
    "unpacked": lambda read: str({**read()}),
    "dict": lambda read: str(dict(read())),
    "copy": lambda read: str(copy.copy(read())),
    "deepcopy": lambda read: str(copy.deepcopy(read())),
    "pickle": lambda read: str(pickle.loads(pickle.dumps(read()))),
    "joined": lambda read: str({} | read()),
    "json": lambda read: json.dumps(read()),
    "keywords": lambda read: str(dict(**read())),
    "match": lambda read: str(match(read())),
    "exec": lambda read: str(by_exec(read())),
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
    "pydantic, dataclass": lambda read: str(pydantic.TypeAdapter(Headers).validate_python(read())),
    "dict": lambda read: str(dict(read())),
}
READERS = [*(("cookies", how) for how in COOKIES), *(("headers", how) for how in HEADERS)]


def shown(part, how, read):
    """Return the text of a page that shows what it has read."""
    text = {"cookies": COOKIES, "headers": HEADERS}[part][how](read)
    return text.decode() if isinstance(text, bytes) else text


def assert_that_each_visitor_gets_the_own_theme(site, part, how):
    """Make requests by two visitors to ``/shown/<part>/<how>``."""
    # After a method in Python, only a value in the page shows that code in C has read it, unless the value is short.
    themes = ("dark-blue", "light-red") if how == "after a method" else ("dark", "light")
    for theme in themes * 2:
        response = site.get(f"/shown/{part}/{quote(how)}", {"Cookie": f"theme={theme}; a=1", "X-Theme": theme})
        assert response.status == 200
        text = response.body.decode()
        assert [each for each in themes if each in text] == [theme]
