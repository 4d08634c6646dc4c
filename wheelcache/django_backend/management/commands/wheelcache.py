"""``manage.py wheelcache``: the figures of the caches of this site, across its workers, and their snapshots."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Sequence
from typing import Any, TextIO, cast

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from wheelcache.cache import Cache
from wheelcache.django_backend.aliases import engines
from wheelcache.errors import FileUnusable
from wheelcache.observability import console, operator_commands, snapshot_commands


class Command(BaseCommand):
    help = "Show the figures of the caches, of all workers of this site on this machine; or see to their snapshots."
    # It is for a site that runs.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        # No subparsers: Django's own options would have to come before them.
        parser.add_argument(
            "action",
            nargs="?",
            choices=(*snapshot_commands.ACTIONS, *operator_commands.ACTIONS),
            help="have all workers save their entries now, or load the newest snapshot beside what they have; "
            "inspect the snapshots there are; have all workers clear their entries; or have the figures start from "
            "zero. Without it, the figures",
        )
        parser.add_argument("--cache", metavar="NAME", help="of clear and reset: which one, all if not given")
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
        try:
            caches = engines()
        except ImproperlyConfigured as error:
            # A snapshot directory of another user's, say: the command may run as another user than the site.
            raise CommandError(str(error)) from None
        if not caches:
            raise CommandError("None of CACHES is a cache of wheelcache.django_backend.")
        # Rich ends its lines itself.
        self.stdout.ending = ""
        try:
            self._act(caches, cast(TextIO, self.stdout), **options)
        except (console.Unshowable, snapshot_commands.Undone, FileUnusable) as error:
            raise CommandError(str(error)) from None

    def _act(self, caches: Sequence[Cache], out: TextIO, **options: Any) -> None:
        action, as_json, watch = options["action"], options["json"], options["watch"]
        styled = not options["no_color"]
        if options["cache"] is not None and action not in operator_commands.ACTIONS:
            raise CommandError("--cache is for clear and reset.")
        if action is None:
            console.show(caches, out, watch=watch, as_json=as_json, styled=styled)
            return
        snapshot_commands.check(action, watch=watch, as_json=as_json)
        if action == "clear":
            operator_commands.clear(caches, options["cache"], out)
        elif action == "reset":
            operator_commands.reset(caches, options["cache"], out)
        elif action == "inspect":
            snapshot_commands.inspect(caches, OPTION, out, as_json=as_json, styled=styled)
        elif action == "save":
            snapshot_commands.save(caches, OPTION, out)
        else:
            snapshot_commands.load(caches, OPTION, out)


OPTION = "SNAPSHOT"


def _seconds(text: str) -> float:
    try:
        return console.seconds(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
