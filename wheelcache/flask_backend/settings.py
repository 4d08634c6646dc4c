"""The settings of an app: what a backend is made of, and in which words they are refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flask import Flask

from wheelcache.errors import FileUnusable
from wheelcache.observability.figures_directory import directory_of
from wheelcache.option_table import Options


def checked_options(options: Options, given: Mapping[str, Any]) -> dict[str, Any]:
    """All ``options`` by their names in ``option_table``.

    Raises:
        TypeError, ValueError, FileUnusable: a given one is unknown or wrong; names it, what it takes and what it got.
    """
    check_known(options, given)
    return options.checked(given)


def check_known(options: Options, given: Mapping[str, Any]) -> None:
    """
    Raises:
        TypeError: an option is not known; names it, its cache and the nearest one.
    """
    unknown = options.unknown(given, f"the cache {given.get('name', 'default')!r}")
    if unknown is not None:
        raise TypeError(unknown)


@contextmanager
def naming(cache: Any) -> Iterator[None]:
    """An option that is refused in here is an error that names the cache as well."""
    try:
        yield
    except (TypeError, ValueError, FileUnusable) as error:
        # Of a subclass the arguments may be others.
        kind = next(each for each in (TypeError, ValueError, FileUnusable) if isinstance(error, each))
        raise kind(f"Wrong setting of the cache {cache!r}: {error}") from error


def figures_directory(app: Flask) -> Path | None:
    """Where figures are published unless ``figures_dir`` says where: the same for all processes of the app."""
    # One package may be installed once and served for several sites, each with an instance folder of its own.
    return directory_of(f"flask {app.name} {Path(app.root_path).resolve()} {Path(app.instance_path).resolve()}")
