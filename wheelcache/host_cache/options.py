"""The options of caches that the workers of a machine share."""

from __future__ import annotations

from typing import Final

from wheelcache.engine import options
from wheelcache.engine.option_table import Option, Options, Spelling

size: Final = options.number("a number of bytes, an int >= 1048576", int, lambda given: given >= 1 << 20, int)

OWN: Final = (
    Option("location", options.text, "", "an absolute path: the folder of the entries; otherwise a name", django=None),
    Option("max_size", size, 128 << 20, "the maximum size of all keys and values in bytes"),
    Option(
        *("max_entries", options.count_or_none, None, "the maximum number of entries"),
        is_argument=True,
        django=Spelling(check=options.as_django_reads(options.count_or_none)),
    ),
)

DJANGO_HOST: Final = Options.of_backend("django", OWN, without=("policy", "max_weight"))
FLASK_HOST: Final = Options.of_backend("flask", OWN, without=("policy", "max_weight"))

BACKENDS: Final = {"HostCache": {"django": DJANGO_HOST, "flask": FLASK_HOST}}
"""The options of the backend, by framework, for messages about an option of another backend."""
