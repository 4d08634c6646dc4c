"""``flask wheelcache``: show the figures of an app's caches across its workers, or manage their snapshots.

This module is an entry point, so every ``flask`` command imports it if wheelcache is installed, even for apps that do
not use it. Therefore the backends are imported only when a command runs.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import click
from flask import current_app
from flask.cli import with_appcontext

from wheelcache.observability import console, entry_commands, operator_commands

JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print a JSON document instead of a table.")
CACHE: Final = click.option("--cache", "name", metavar="NAME", help="The cache. Default: all caches, or the only one.")
KEY: Final = click.argument("target", required=False, metavar="[KEY]")
OPTIONS: Final = {
    "get": [click.option("--show-value", is_flag=True, help="Show the value.")],
    "delete": [
        click.option("--pattern", help="Delete the keys that match a pattern."),
        click.option("--tag", help="Delete the entries of a tag."),
    ],
}


def _seconds(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    try:
        return None if text is None else console.seconds(text)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None


@click.group("wheelcache", invoke_without_command=True)
@JSON
@click.option(
    "--watch",
    callback=_seconds,
    is_flag=False,
    flag_value=f"{console.WATCH:g}",
    metavar="[SECONDS]",
    help=f"Update the table every SECONDS (default: {console.WATCH:g}) until Ctrl-C.",
)
@click.pass_context
@with_appcontext
def wheelcache(context: click.Context, as_json: bool, watch: float | None) -> None:
    """Show the figures of the caches, over all workers of this app on this machine, or manage their snapshots."""
    if context.invoked_subcommand is None:
        _run(None, watch=watch, as_json=as_json)


def _command(action: str) -> click.Command:
    def run(name: str | None = None, as_json: bool = False, **given: Any) -> None:
        parent = click.get_current_context().parent
        before = {} if parent is None else parent.params
        as_json = as_json or before.get("as_json", False)
        _run(action, name=name, watch=before.get("watch"), as_json=as_json, **given)

    command = click.Command(action, callback=with_appcontext(run), help=operator_commands.ACTIONS[action])
    if action in entry_commands.ACTIONS:
        command = KEY(CACHE(JSON(command)))
        for option in OPTIONS.get(action, ()):
            command = option(command)
        return command
    if action == "inspect":
        return JSON(command)
    if action == "purge":
        command.params.append(click.Argument(["target"]))
    return CACHE(command) if action in ("clear", "purge", "reset") else command


for _action in operator_commands.ACTIONS:
    wheelcache.add_command(_command(_action))


def _run(action: str | None, **given: Any) -> None:
    from wheelcache.flask_backend import pages

    # Flask-Caching registers an extension of this name.
    if not {"cache", pages.PAGES} & current_app.extensions.keys():
        raise click.ClickException(f"The app {current_app.name!r} has no Flask-Caching cache.")
    from wheelcache.flask_backend import dashboard

    caches = dashboard.caches_of_app()
    if not caches:
        raise click.ClickException(f"No cache of the app {current_app.name!r} is one of wheelcache.flask_backend.")
    operator_commands.run(action, caches, "snapshot", sys.stdout, click.ClickException, **given)
