"""``manage.py wheelcache``: the figures of the caches of this site, across its workers."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import Any, TextIO, cast

from django.core.management.base import BaseCommand, CommandError, CommandParser

from wheelcache import console
from wheelcache.django_backend.aliases import engines


class Command(BaseCommand):
    help = "Show the figures of the caches, of all workers of this site on this machine."
    # It is for a site that runs.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one document for programs, instead of a table")
        parser.add_argument(
            "--watch",
            nargs="?",
            type=_seconds,
            const=console.WATCH,
            metavar="SECONDS",
            help=f"look again every so many seconds, by default {console.WATCH:g}, until Ctrl-C",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        caches = engines()
        if not caches:
            raise CommandError("None of CACHES is a cache of wheelcache.django_backend.")
        # Rich ends its lines itself.
        self.stdout.ending = ""
        try:
            console.show(
                caches,
                cast(TextIO, self.stdout),
                watch=options["watch"],
                as_json=options["json"],
                styled=not options["no_color"],
            )
        except console.Unshowable as error:
            raise CommandError(str(error)) from None


def _seconds(text: str) -> float:
    try:
        return console.seconds(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
