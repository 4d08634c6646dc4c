"""Names of a package that are imported at their first access, so that a program loads only the parts that it uses."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package.

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
