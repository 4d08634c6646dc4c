"""``manage.py wheelcache``: the figures of the caches of this site, across its workers, and their snapshots."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import Any, TextIO, cast

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from wheelcache.django_backend.aliases import engines
from wheelcache.observability import console, operator_commands


class Command(BaseCommand):
    help = "Show the figures of the caches, of all workers of this site on this machine; or manage their snapshots."
    # The site is running, so its settings have been checked.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        # No subparsers: Django's own options would have to come before them.
        parser.add_argument(
            "action",
            nargs="?",
            choices=tuple(operator_commands.ACTIONS),
            help="make all workers save their entries now, load the newest snapshot in addition to their entries, or "
            "clear their entries; inspect the snapshots; or reset the figures to zero. Without an action, show the "
            "figures",
        )
        parser.add_argument("--cache", metavar="NAME", help="the cache to clear or reset; all caches if not given")
        parser.add_argument("--json", action="store_true", help="print one document for programs, instead of a table")
        parser.add_argument(
            "--watch",
            nargs="?",
            type=_seconds,
            const=console.WATCH,
            metavar="SECONDS",
            help=f"show the figures again every SECONDS seconds, by default {console.WATCH:g}, until Ctrl-C",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            caches = engines()
        except ImproperlyConfigured as error:
            # For example, the command runs as another user than the site and may not use its snapshot directory.
            raise CommandError(str(error)) from None
        if not caches:
            raise CommandError("None of CACHES is a cache of wheelcache.django_backend.")
        # Rich ends its lines itself.
        self.stdout.ending = ""
        given = {"name": options["cache"], "watch": options["watch"], "as_json": options["json"]}
        styled = not options["no_color"]
        action, out = options["action"], cast(TextIO, self.stdout)
        operator_commands.run(action, caches, "SNAPSHOT", out, CommandError, **given, styled=styled)


def _seconds(text: str) -> float:
    try:
        return console.seconds(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
