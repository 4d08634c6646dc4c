"""The data structure of a cache, in Python and compiled. ``contract`` defines both; this module chooses one.

The compiled core may be installed but unusable: without the GIL, and in subinterpreters. Its modules load in the first
interpreter of a process that imports them and in no other, and from Python 3.12 on in no isolated one. Then the Python
core runs, and a line on the log gives the reason.

Attributes:
    IMPLEMENTATION: "compiled" if that core can be used, otherwise "python". ``WHEELCACHE_CORE`` in the environment
        asks for one of the two; it is read once, at the import.
    CoreClass: the class of the cores.
    CacheAccess, PrefixAccess, WriteState, Timer, TimingWheel: the classes that belong to this core.
"""

from __future__ import annotations

import logging
import os
from importlib import import_module
from typing import TYPE_CHECKING, Final

from wheelcache.core.access import CacheAccess, PrefixAccess, WriteState
from wheelcache.core.python_core import PythonCore as CoreClass
from wheelcache.core.timing_wheel import Timer, TimingWheel

__all__ = ["IMPLEMENTATION", "CacheAccess", "CoreClass", "PrefixAccess", "Timer", "TimingWheel", "WriteState"]

logger = logging.getLogger("wheelcache")

ASKED: Final = os.environ.get("WHEELCACHE_CORE") or None
IMPLEMENTATION = "python"

if ASKED not in (None, "python", "compiled"):
    raise ValueError(f'WHEELCACHE_CORE must be "python" or "compiled", not {ASKED!r}')

if ASKED != "python" and not TYPE_CHECKING:
    try:
        # Import both before either is used.
        import_module("wheelcache.core._core")
        import_module("wheelcache.core._timing_wheel")
        from wheelcache.core._core import CacheAccess, PrefixAccess, WriteState
        from wheelcache.core._core import CompiledCore as CoreClass
        from wheelcache.core._timing_wheel import Timer, TimingWheel

        IMPLEMENTATION = "compiled"
    except ImportError as error:
        if ASKED == "compiled":
            raise ImportError(f"WHEELCACHE_CORE is compiled, and there is no such core: {error}") from error
        if not isinstance(error, ModuleNotFoundError):
            logger.warning("The compiled core cannot be used (%s); the Python core is used instead.", error)
