"""Remembers pages that are not for one visitor, as far as the Cache-Control of their last response says.

Only such a page may lose cookies. The first visitor of any other one gets it with all cookies, since it may turn out to
be private.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from wheelcache.engine.runtime.shared_objects import lazy_lock

MOST_PAGES: Final = 4096
"""With keys of at most 250 characters, they take 2 MB."""


class SharedPages:
    """The keys of the pages, those that were noted last at the end."""

    def __init__(self) -> None:
        self._lock = lazy_lock()
        self._keys: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def add(self, key: str) -> None:
        with self._lock.get():
            self._keys[key] = None
            self._keys.move_to_end(key)
            if len(self._keys) > MOST_PAGES:
                self._keys.popitem(last=False)

    def remove(self, key: str) -> None:
        if key in self._keys:
            with self._lock.get():
                self._keys.pop(key, None)

    def after_fork_in_child(self) -> None:
        self._lock.forget()
