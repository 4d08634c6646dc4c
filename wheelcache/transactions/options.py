"""The option of caches that follow the transactions of a database."""

from __future__ import annotations

from typing import Any, Final

from wheelcache.engine import options
from wheelcache.engine.option_table import Option, Spelling


def databases(name: str, value: Any) -> bool | tuple[str, ...]:
    """Check whether, or the aliases of the databases whose transactions, a cache follows."""
    if isinstance(value, bool):
        return value
    if isinstance(value, list | tuple) and value and all(isinstance(each, str) for each in value):
        return tuple(value)
    raise TypeError(f"{name} must be True, False or a list of aliases of DATABASES, not {options.shown(value)}")


OPTIONS: Final = (
    Option(
        "transactions",
        databases,
        False,
        "whether values and deletes inside a transaction of the database reach others when it is committed; "
        "or a list of aliases of `DATABASES`",
        flask=Spelling(
            check=options.flag,
            meaning="whether values and deletes inside a transaction that the site announces reach others when it is "
            "committed",
        ),
    ),
)
