"""``manage.py wheelcache``: show the figures of this site's caches across its workers, or manage their snapshots."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import Any, TextIO, cast

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from wheelcache.django_backend.aliases import engines
from wheelcache.django_backend.pages import stand_in
from wheelcache.observability import console, operator_commands


class Command(BaseCommand):
    help = "Show the figures of the caches, over all workers of this site on this machine, or manage their snapshots."
    # The command is for a site that is already running.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        # With subparsers, Django's own options would have to precede the action.
        parser.add_argument(
            "action",
            nargs="?",
            choices=tuple(operator_commands.ACTIONS),
            help="save: all workers save their entries. load: all workers load the newest snapshot, in addition to "
            "their entries. clear: all workers clear their entries. purge: all workers remove the pages of a URL or a "
            "host. reset: the figures start from zero. inspect: list the snapshots. keys, get, ttl, delete, tags: the "
            "entries, in all workers. Without an action, the figures are shown",
        )
        parser.add_argument(
            "target",
            nargs="?",
            help="the URL or host to purge; the key, as it is stored, for get, ttl and delete; the pattern for keys "
            "and tags",
        )
        parser.add_argument("--pattern", help="delete the keys that match a pattern")
        parser.add_argument("--tag", help="delete the entries of a tag")
        parser.add_argument("--show-value", action="store_true", help="let get show the value")
        parser.add_argument("--cache", metavar="NAME", help="the cache (default: all caches, or the only one)")
        parser.add_argument("--json", action="store_true", help="print a JSON document instead of a table")
        parser.add_argument(
            "--watch",
            nargs="?",
            type=_seconds,
            const=console.WATCH,
            metavar="SECONDS",
            help=f"update the table every SECONDS (default: {console.WATCH:g}) until Ctrl-C",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            caches = engines() or stand_in()
        except ImproperlyConfigured as error:
            # For instance, the snapshot directory belongs to the user that runs the site, not to this user.
            raise CommandError(str(error)) from None
        if not caches:
            raise CommandError("None of CACHES is a cache of wheelcache.django_backend, and no pages are cached.")
        # Rich writes the line endings itself.
        self.stdout.ending = ""
        given = {name: options[name] for name in ("target", "pattern", "tag", "show_value", "watch")}
        given |= {"name": options["cache"], "as_json": options["json"]}
        styled = not options["no_color"]
        action, out = options["action"], cast(TextIO, self.stdout)
        operator_commands.run(action, caches, "SNAPSHOT", out, CommandError, **given, styled=styled)


def _seconds(text: str) -> float:
    try:
        return console.seconds(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
