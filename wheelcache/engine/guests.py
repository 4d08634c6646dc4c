"""Find the guests: features in folders of their own, which plug in at the seams of the engine.

A cache works without any of them, and no module above imports one. A guest is found by its name, at the moment when a
setting or a call asks for its feature. So a process loads only the guests that it uses, and the heart can be copied
without them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from wheelcache.runtime import lifecycle
from wheelcache.runtime.held_lock import HeldLock

GUESTS: Final = ("host_cache", "near_cache", "transactions", "fill_waits", "pages", "watch", "timers")
"""The folders of the guests."""

IMPORTS: Final = HeldLock()
"""The right to import a guest."""

lifecycle.HELD.add(IMPORTS)


def module_of(guest: str, name: str) -> Any:
    """Return the module ``name`` of a guest; None if there is no such guest, or if it has no such module.

    A fork waits for the end of the import: otherwise the child would wait for the lock of the module forever.
    """
    package = f"wheelcache.{guest}"
    with IMPORTS.lock:
        if find_spec(package) is None or find_spec(f"{package}.{name}") is None:
            return None
        return import_module(f"{package}.{name}")


def needed_module(guest: str, name: str, by: str) -> Any:
    """Return the module ``name`` of a guest without which ``by``, a call, cannot do its work.

    Raises:
        ModuleNotFoundError: if there is no such guest.
    """
    module = module_of(guest, name)
    if module is None:
        raise ModuleNotFoundError(is_missing(guest, by))
    return module


def is_missing(guest: str, by: str) -> str:
    """Return the message that an option or a call needs a guest that is missing."""
    return f"{by} needs wheelcache.{guest}, which is not installed"


def modules_named(name: str) -> Iterator[Any]:
    """Iterate over the modules ``name`` of all guests that have one."""
    return filter(None, (module_of(guest, name) for guest in GUESTS))


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package, whose names are imported at their first access.

    ``from package import Name`` imports the module immediately, before any fork. Code in threads must not access the
    names as attributes of the package: if another thread forks during an import, the child waits for its lock forever.

    Args:
        modules: the module of each name.
    """

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    return find
