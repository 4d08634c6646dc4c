"""Which errors of the store behind are outages: all that are not about the key or the value.

A store that is well raises these as well: TypeError, ValueError, LookupError, AttributeError, what pickle raises, and
what Redis or Memcached say of a command.
"""

from __future__ import annotations

import pickle
from typing import Final

ABOUT_THE_VALUE: Final = (
    *(TypeError, ValueError, LookupError, AttributeError, pickle.PickleError),
    # What unpickling raises after a class was moved, or of a torn value.
    *(ImportError, EOFError, RecursionError),
)

ABOUT_THE_CALL: Final = ("ResponseError", "DataError", "MemcacheIllegalInputError")
"""The same in the words of redis-py and pymemcache, by exactly these names: what is derived of them may be outages."""


def is_outage(error: Exception) -> bool:
    """Whether a store that is well would not raise it."""
    return not (isinstance(error, ABOUT_THE_VALUE) or type(error).__name__ in ABOUT_THE_CALL)
