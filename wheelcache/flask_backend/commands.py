"""``flask wheelcache``: the figures of the caches of an app, across its workers.

An entry point: whoever has wheelcache installed has this imported by every ``flask`` command, whatever his app uses. So
what belongs to the caches is imported when it is run.
"""

from __future__ import annotations

import sys

import click
from flask import current_app
from flask.cli import with_appcontext

from wheelcache import console


def _seconds(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    try:
        return None if text is None else console.seconds(text)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None


@click.command("wheelcache")
@click.option("--json", "as_json", is_flag=True, help="Print one document for programs, instead of a table.")
@click.option(
    "--watch",
    callback=_seconds,
    is_flag=False,
    flag_value=f"{console.WATCH:g}",
    metavar="[SECONDS]",
    help=f"Look again every so many seconds, by default {console.WATCH:g}, until Ctrl-C.",
)
@with_appcontext
def wheelcache(as_json: bool, watch: float | None) -> None:
    """Show the figures of the caches, of all workers of this app on this machine."""
    # An extension of this name is there only if Flask-Caching is.
    if "cache" not in current_app.extensions:
        raise click.ClickException(f"The app {current_app.name!r} has no Flask-Caching cache.")
    from wheelcache.flask_backend.dashboard import _caches

    caches = _caches()
    if not caches:
        raise click.ClickException(f"No cache of the app {current_app.name!r} is one of wheelcache.flask_backend.")
    try:
        console.show(caches, sys.stdout, watch=watch, as_json=as_json)
    except console.Unshowable as error:
        raise click.ClickException(str(error)) from None
