"""The entries of a cache, in Python and compiled: see ``contract`` for what both do. Which one runs is decided here.

Attributes:
    IMPLEMENTATION: "compiled" or "python". The first, if it is installed; ``WHEELCACHE_CORE`` in the environment, which
        is read once, at the import, asks for one of them.
    CoreClass: the class of the cores.
    CacheAccess, PrefixAccess, WriteState: the classes that belong to it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from wheelcache.core.access import CacheAccess, PrefixAccess, WriteState
from wheelcache.core.python_core import PythonCore as CoreClass

__all__ = ["IMPLEMENTATION", "CacheAccess", "CoreClass", "PrefixAccess", "WriteState"]

ASKED: Final = os.environ.get("WHEELCACHE_CORE") or None
IMPLEMENTATION = "python"

if ASKED not in (None, "python", "compiled"):
    raise ValueError(f'WHEELCACHE_CORE must be "python" or "compiled", not {ASKED!r}')

if ASKED != "python" and not TYPE_CHECKING:
    try:
        from wheelcache.core._core import CacheAccess, PrefixAccess, WriteState
        from wheelcache.core._core import CompiledCore as CoreClass

        IMPLEMENTATION = "compiled"
    except ImportError as error:
        if ASKED == "compiled":
            raise ImportError(f"WHEELCACHE_CORE is compiled, and there is no such core: {error}") from error
