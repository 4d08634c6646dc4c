"""``flask wheelcache``: show the figures of an app's caches across its workers, or run a command in them.

This module is an entry point, so every ``flask`` command imports it if wheelcache is installed, even for apps that do
not use it. Therefore the backends are imported only when a command runs.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

import click
from flask import current_app, got_request_exception
from flask.cli import with_appcontext

from wheelcache.cache import Cache
from wheelcache.watch import command_line
from wheelcache.watch.console import CommandFailed, Report

HOW_TO_WRAP: Final = """\
  pages = HTTPCache()  # from wheelcache.flask_backend
  pages.init_app(app)"""


@click.command(
    "wheelcache",
    help=command_line.DESCRIPTION,
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False},
)
@click.pass_context
def wheelcache(context: click.Context) -> None:
    # All arguments are passed on, as they were given.
    parser = ArgumentParser(prog=context.command_path, description=command_line.DESCRIPTION)
    command_line.add_commands(parser)
    framework = command_line.Framework(_caches, lambda name: name, _explain)
    try:
        command_line.run(vars(parser.parse_args(context.args)), framework, sys.stdout)
    except CommandFailed as reason:
        raise click.ClickException(str(reason)) from None


@with_appcontext
def _caches() -> Sequence[Cache]:
    from wheelcache.pages import flask_pages as pages

    # Flask-Caching registers an extension of this name.
    if not {"cache", pages.PAGES} & current_app.extensions.keys():
        raise CommandFailed(f"The app {current_app.name!r} has no Flask-Caching cache.")
    from wheelcache.watch import flask_dashboard

    caches = flask_dashboard.caches_of_app()
    if not caches:
        raise CommandFailed(f"No cache of the app {current_app.name!r} is one of wheelcache.flask_backend.")
    return caches


@with_appcontext
def _explain(target: str, header_lines: Iterable[str], *, rehearses: bool) -> Report:
    from wheelcache.pages import why
    from wheelcache.pages.local_requests import ask_wsgi

    host = current_app.config["SERVER_NAME"] or "localhost"
    base, app = f"{current_app.config['PREFERRED_URL_SCHEME']}://{host}", current_app.wsgi_app
    applications, connect = [lambda: partial(ask_wsgi, app)], got_request_exception.connect
    return why.run(target, header_lines, base, applications, HOW_TO_WRAP, connect, rehearses=rehearses)
