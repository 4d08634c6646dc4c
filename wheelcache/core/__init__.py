"""The data structure of a cache, in Python and compiled. ``contract`` defines both; this module chooses one.

The compiled core may be installed but unusable: it needs the GIL, it loads only in the first interpreter of a process
that imports it, and from Python 3.12 on it does not load in an isolated interpreter. In these cases the Python core
runs, and the reports give the reason.

Attributes:
    IMPLEMENTATION: "compiled" if the compiled core can be used, otherwise "python". The environment variable
        ``WHEELCACHE_CORE``, which is read once, during the import, selects one of them.
    REPORT: a sentence that names the core in use.
    HOW_TO_CHANGE: the reason for this choice, and how to get the other core.
    CoreClass: the class of the cores.
    CacheAccess, PrefixAccess, VersionedAccess, WriteState: the classes that belong to this core.
    ContextMemo, KeptAttribute: see ``context_memo``; compiled along with the core.
    exchange_word: see ``access``; compiled along with the core.

To add a removal cause: a member of ``RemovalCause`` and of ``MissCause`` in ``contract``, with their numbers in
``removals.pxi`` and ``misses.pxi``; the code that removes, in ``writes.pxi`` or ``map.pxi``, and in ``entry_map`` of
the Python core; and in ``engine/stats`` a counter of ``Stats`` and a row of ``REMOVALS``, from which the metrics and
the dashboard have it. An eviction policy is a branch of ``eviction.pxi``; the Python core is always LRU.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wheelcache.core.access import CacheAccess, PrefixAccess, VersionedAccess, WriteState, exchange_word
from wheelcache.core.context_memo import ContextMemo, KeptAttribute
from wheelcache.core.python_core import PythonCore as CoreClass
from wheelcache.core.python_core import has_gil

__all__ = [
    "HOW_TO_CHANGE",
    "IMPLEMENTATION",
    "REPORT",
    "CacheAccess",
    "ContextMemo",
    "CoreClass",
    "KeptAttribute",
    "PrefixAccess",
    "VersionedAccess",
    "WriteState",
    "exchange_word",
]

logger = logging.getLogger("wheelcache")

ASKED: Final = os.environ.get("WHEELCACHE_CORE") or None
IMPLEMENTATION = "python"
HOW_TO_CHANGE = "WHEELCACHE_CORE=python in the environment selects it; unset it for the compiled core."

if ASKED not in (None, "python", "compiled"):
    raise ValueError(f'WHEELCACHE_CORE must be "python" or "compiled", not {ASKED!r}')

if ASKED != "python" and not TYPE_CHECKING:
    try:
        from wheelcache.core._core import (
            CacheAccess,
            ContextMemo,
            KeptAttribute,
            PrefixAccess,
            VersionedAccess,
            WriteState,
            exchange_word,
        )
        from wheelcache.core._core import CompiledCore as CoreClass

        IMPLEMENTATION = "compiled"
        HOW_TO_CHANGE = "WHEELCACHE_CORE=python in the environment selects the one in Python."
    except ImportError as error:
        if ASKED == "compiled":
            raise ImportError(
                f'WHEELCACHE_CORE is "compiled", but the compiled core cannot be imported: {error}'
            ) from error
        if isinstance(error, ModuleNotFoundError):
            from wheelcache.core.how_to_compile import how_to_compile

            HOW_TO_CHANGE = how_to_compile(Path(__file__).parent)
        elif not has_gil():
            HOW_TO_CHANGE = "PYTHON_GIL=1 in the environment keeps the lock of the interpreter, for the compiled core."
        else:
            HOW_TO_CHANGE = f"The compiled core cannot be imported: {error}."
        if not isinstance(error, ModuleNotFoundError):
            logger.warning("The compiled core cannot be used (%s); the Python core is used instead.", error)

REPORT: Final = f"wheelcache runs on its {IMPLEMENTATION} core"
