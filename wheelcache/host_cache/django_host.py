"""One cache for the machine, shared by all workers: ``"BACKEND": "wheelcache.django_backend.HostCache"``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from os.path import isabs
from pathlib import Path
from typing import Any, ClassVar

from wheelcache.cache import Cache
from wheelcache.core.access import VersionedAccess
from wheelcache.django_backend.backend import WheelCache
from wheelcache.django_backend.site_settings import aliases_of, site_identity
from wheelcache.django_backend.stores import Store
from wheelcache.engine.codec import Codec
from wheelcache.engine.option_table import Options
from wheelcache.host_cache.host_core import is_storable
from wheelcache.host_cache.hosted_cache import HostedCache, PythonAccess
from wheelcache.host_cache.options import DJANGO_HOST as OPTIONS
from wheelcache.host_cache.place import Place, check_location, folder_of, test_process
from wheelcache.timers.locks import MachineLocks


class HostStore(Store):
    """The entries of a host cache, as this process uses them.

    Attributes:
        find_folder: returns the folder of the entries.
    """

    __slots__ = ("_identity", "_max_size", "find_folder")

    options: ClassVar[Options] = OPTIONS
    keeps: Callable[[Any], bool] = staticmethod(is_storable)

    def __init__(self, location: str, name: str, checked: Mapping[str, Any], identity: str) -> None:
        check_location(location, checked["max_size"])
        self._identity = identity
        self.find_folder = partial(_folder, location, identity)
        self._max_size = checked["max_size"]
        super().__init__(name, checked)
        self.keeps_atoms = False
        # Another process may hold a lock, for which ``has_key`` returns True here.
        self.locks.get()

    def _make_cache(self, arguments: dict[str, Any]) -> Cache:
        return HostedCache(lambda: Place(self.find_folder()), self._max_size, **arguments)

    def _make_codec(self, serializer: str) -> Codec:
        if serializer == "reference":
            raise ValueError(
                "SERIALIZER must be 'pickle' or the dotted path of a serializer, not 'reference': the "
                "workers share no objects"
            )
        return super()._make_codec(serializer)

    def _make_locks(self) -> MachineLocks:
        # The LOCATION of another site may have the same name.
        return MachineLocks(self._identity)


class HostCache(PythonAccess, WheelCache):
    """Django's cache API on the entries that all workers of the machine share: see ``host_cache``.

    An absolute path as LOCATION is the folder of the entries. Any other LOCATION is a name, as for ``LocMemCache``.
    Otherwise, the alias is the name.
    """

    has_shared_entries = True
    store: HostStore
    # The calls in Python, as those of ``PythonAccess``.
    _ttl_of, add, set = VersionedAccess._ttl_of, VersionedAccess.add, VersionedAccess.set  # type: ignore[assignment]
    touch, delete, incr = VersionedAccess.touch, VersionedAccess.delete, VersionedAccess.incr

    def _find_store(self, location: str, params: dict[str, Any]) -> HostStore:
        alias = next(iter(aliases_of(location, params)), "default")
        identity = f"{site_identity('host')} {location or alias}"
        name = location if location and not isabs(location) else alias

        def make(location: str, checked: Mapping[str, Any]) -> HostStore:
            return HostStore(location, name, checked, identity)

        return HostStore.find(location, params, identity, make)


def _folder(location: str, identity: str) -> Path:
    """Return the folder of a host cache. During tests, each process has its own."""
    test_state = getattr(sys.modules.get("django.test.utils"), "_TestState", None)
    tests = test_process(is_testing=hasattr(test_state, "saved_data"), number=0)
    return folder_of(location, identity, tests)
