"""The options of caches that the workers of a machine share."""

from __future__ import annotations

from typing import Final

from wheelcache.engine import options
from wheelcache.engine.option_table import ALL, BACKENDS, NO_OPTION, Option, Options, Spelling, rows_for

size: Final = options.number("a number of bytes, an int >= 1048576", int, lambda given: given >= 1 << 20, int)

MAX_ENTRIES: Final = Option(
    *("max_entries", ALL, options.count_or_none, None, "the maximum number of entries"),
    django=Spelling(check=options.as_django_reads(options.count_or_none)),
)

ROWS: Final = (
    MAX_ENTRIES,
    Option(
        *("location", BACKENDS, options.text, ""),
        "an absolute path: the folder of the entries; otherwise a name",
        django=NO_OPTION,
    ),
    Option("max_size", BACKENDS, size, 128 << 20, "the maximum size of all keys and values in bytes"),
    *rows_for(BACKENDS, without=("max_entries", "policy", "max_weight")),
)

DJANGO_HOST: Final = Options(ROWS, "django")
FLASK_HOST: Final = Options(ROWS, "flask")
