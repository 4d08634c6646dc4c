"""``flask wheelcache``: the figures of the caches of an app, across its workers, and their snapshots.

An entry point: where wheelcache is installed, every ``flask`` command imports this, whatever its app uses. So
what belongs to the caches is imported when it is run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click
from flask import current_app
from flask.cli import with_appcontext

from wheelcache.cache import Cache
from wheelcache.errors import FileUnusable
from wheelcache.observability import console, operator_commands, snapshot_commands

OPTION: Final = "snapshot"


def _seconds(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    try:
        return None if text is None else console.seconds(text)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None


@click.group("wheelcache", invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print one document for programs, instead of a table.")
@click.option(
    "--watch",
    callback=_seconds,
    is_flag=False,
    flag_value=f"{console.WATCH:g}",
    metavar="[SECONDS]",
    help=f"Look again every so many seconds, by default {console.WATCH:g}, until Ctrl-C.",
)
@click.pass_context
@with_appcontext
def wheelcache(context: click.Context, as_json: bool, watch: float | None) -> None:
    """Show the figures of the caches, of all workers of this app on this machine; or see to their snapshots."""
    with _complaints():
        if context.invoked_subcommand is None:
            console.show(_caches(), sys.stdout, watch=watch, as_json=as_json)
        else:
            snapshot_commands.check(context.invoked_subcommand, watch=watch, as_json=as_json)


@wheelcache.command("save")
@with_appcontext
def _save() -> None:
    """Have all workers save their entries now, and wait until they have."""
    with _complaints():
        snapshot_commands.save(_caches(), OPTION, sys.stdout)


@wheelcache.command("load")
@with_appcontext
def _load() -> None:
    """Have all workers load the newest snapshot, beside what they have."""
    with _complaints():
        snapshot_commands.load(_caches(), OPTION, sys.stdout)


@wheelcache.command("clear")
@click.option("--cache", "name", metavar="NAME", help="Which one; all if not given.")
@with_appcontext
def _clear(name: str | None) -> None:
    """Have all workers clear their entries."""
    with _complaints():
        operator_commands.clear(_caches(), name, sys.stdout)


@wheelcache.command("reset")
@click.option("--cache", "name", metavar="NAME", help="Which one; all if not given.")
@with_appcontext
def _reset(name: str | None) -> None:
    """Have the figures start from zero, here and on the dashboard."""
    with _complaints():
        operator_commands.reset(_caches(), name, sys.stdout)


@wheelcache.command("inspect")
@click.option("--json", "as_json", is_flag=True, help="Print one document for programs, instead of a table.")
@click.pass_context
@with_appcontext
def _inspect(context: click.Context, as_json: bool) -> None:
    """Show the snapshots there are, how old they are, and whether they are whole."""
    before = context.parent is not None and context.parent.params["as_json"]
    with _complaints():
        snapshot_commands.inspect(_caches(), OPTION, sys.stdout, as_json=as_json or before)


def _caches() -> list[Cache]:
    # An extension of this name is there only if Flask-Caching is.
    if "cache" not in current_app.extensions:
        raise click.ClickException(f"The app {current_app.name!r} has no Flask-Caching cache.")
    from wheelcache.flask_backend import dashboard

    caches = dashboard.caches_of_app()
    if not caches:
        raise click.ClickException(f"No cache of the app {current_app.name!r} is one of wheelcache.flask_backend.")
    return caches


@contextmanager
def _complaints() -> Iterator[None]:
    try:
        yield
    except (console.Unshowable, snapshot_commands.Undone, FileUnusable) as error:
        raise click.ClickException(str(error)) from None
