"""One cache for the machine, shared by all workers: ``CACHE_TYPE = "wheelcache.flask_backend.HostCache"``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from os.path import isabs
from pathlib import Path
from typing import Any

from flask import Flask

from wheelcache.engine import options
from wheelcache.flask_backend.backend import WheelCache
from wheelcache.host_cache.host_core import is_storable
from wheelcache.host_cache.hosted_cache import HostedCache, PythonAccess
from wheelcache.host_cache.options import FLASK_HOST as OPTIONS
from wheelcache.host_cache.place import Place, check_location, folder_of, test_process

_numbers = count()

POSITIONAL = ("max_entries", "default_timeout", "ignore_delete_many_errors")


class HostCache(PythonAccess, WheelCache):
    """cachelib's cache API on the entries that all workers of the machine share: see ``host_cache``.

    Args:
        identity: distinguishes the entries from those of other apps. It may be empty if ``location`` is a path.
        is_testing: whether each process has entries of its own.
        given: the options: see ``options.FLASK_HOST``. An absolute path as ``location`` is the folder of the
            entries. Any other one is a name.

    Raises:
        TypeError, ValueError: if an option is unknown or wrong. The message names the option, the values that it
            accepts and the value that it got.
    """

    _table = OPTIONS
    keeps: Callable[[Any], bool] = staticmethod(is_storable)

    def __init__(self, identity: str = "", *, is_testing: bool = False, **given: Any) -> None:
        checked = self._checked_options(given)
        if not identity and not isabs(checked["location"]):
            raise ValueError(
                "A HostCache that no app makes needs an identity of the site, or a path as location: otherwise, all "
                "sites of the user would share their entries"
            )
        check_location(checked["location"], checked["max_size"])
        # As each app of a test would have a SimpleCache of its own.
        number = next(_numbers) if is_testing else 0
        name = f"flask {identity} {checked['location']}"
        find_place = partial(_find_place, checked["location"], name, is_testing, number)
        with OPTIONS.in_errors():
            engine = HostedCache(find_place, checked["max_size"], **OPTIONS.for_engine(checked))
        self._use_engine(engine, checked)

    @classmethod
    def factory(cls, app: Flask, config: dict[str, Any], args: list[Any], kwargs: dict[str, Any]) -> HostCache:
        """Return a new backend. Flask-Caching calls this. CACHE_ARGS and CACHE_OPTIONS override the other settings.
        CACHE_THRESHOLD, which has a default of 500 entries, has no effect: CACHE_OPTIONS may have ``max_entries``."""
        if len(args) > len(POSITIONAL):
            raise TypeError(f"CACHE_ARGS must be at most {', '.join(POSITIONAL)}, not {options.shown(args)}")
        prefix = {"key_prefix": config["CACHE_KEY_PREFIX"] or ""}
        given = {**prefix, **kwargs, **dict(zip(POSITIONAL, args, strict=False))}
        # One installed package may serve several sites, each with an instance folder of its own.
        identity = f"{app.name} {Path(app.root_path).resolve()} {Path(app.instance_path).resolve()}"
        return cls._for_app(app, given, lambda given: cls(identity, is_testing=app.testing, **given))

    def is_of_this_process(self) -> bool:
        return False


def _find_place(location: str, identity: str, is_testing: bool, number: int) -> Place:
    return Place(folder_of(location, identity, test_process(is_testing=is_testing, number=number)))
