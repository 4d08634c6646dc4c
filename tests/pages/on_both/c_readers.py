"""Ways to read the cookies and the headers of a visitor, of which some call no method in Python.

``COOKIES`` and ``HEADERS`` map names to functions that get a function which accesses the attribute, such as
``lambda: request.COOKIES``, and return a text with the theme of the visitor: the value of the cookie ``theme``, and of
the header ``X-Theme``.
"""

import ctypes
import operator
from collections import ChainMap, defaultdict
from functools import partial

import orjson


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


def if_true(found):
    if found:
        return orjson.dumps(found, default=str)
    return None


def after_a_method(found):
    found.get("color")
    return orjson.dumps(found)


IN_C = {
    "PyDict_Next": lambda read: next_items(read()),
    "orjson": lambda read: orjson.dumps(read(), default=str),
    "orjson, nested": lambda read: orjson.dumps({"visits": [{"cookies": read()}]}, default=str),
    "a method of dict": lambda read: dict.__repr__(read()),
    "or": lambda read: orjson.dumps(read() or {}, default=str),
    "if": lambda read: if_true(read()),
    "dict": lambda read: str(dict(read())),
}
COOKIES = {
    **IN_C,
    "PyDict_GetItem": lambda read: get_item(read(), "theme"),
    "after a method": lambda read: after_a_method(read()),
    "itemgetter": lambda read: str(operator.itemgetter("theme")(read())),
    "ChainMap": lambda read: str(ChainMap({}, read())["theme"]),
    "the same class": lambda read: str(type(read())(read())),
}
HEADERS = {
    **IN_C,
    "PyDict_GetItem": lambda read: get_item(read(), "HTTP_X_THEME"),
}
READERS = [*(("cookies", how) for how in COOKIES), *(("headers", how) for how in HEADERS)]
# After a method in Python, only a value in the page shows that code in C has read it, unless the value is short.
THEMES = defaultdict(lambda: ("dark", "light"), {"after a method": ("dark-blue", "light-red")})


def shown(part, how, read):
    """Return the text of a page that shows what it has read."""
    text = {"cookies": COOKIES, "headers": HEADERS}[part][how](read)
    return text.decode() if isinstance(text, bytes) else text
