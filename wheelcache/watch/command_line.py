"""The command line of both frameworks: ``manage.py wheelcache`` and ``flask wheelcache``.

Each framework passes its own parser to ``add_commands``, and the parsed options to ``run``.
"""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from math import isfinite
from typing import Any, Final, TextIO

from wheelcache.cache import Cache
from wheelcache.errors import FileUnusable
from wheelcache.pages.keys import NotPurgeable
from wheelcache.watch import console, entry_commands, page_commands, site_commands
from wheelcache.watch.console import CommandFailed, Report
from wheelcache.watch.publisher import INTERVAL

DESCRIPTION: Final = (
    "Show the figures of the caches, over all workers of this site on this machine, or run a command in all workers."
)

COMMANDS: Final = {
    "misses": site_commands.misses,
    "clear": site_commands.clear,
}
"""The commands for one cache, or for all."""

MODES: Final = ("off", "rehearse", "on")

WATCH: Final = INTERVAL
"""Default of ``--watch``, in seconds. Workers do not publish more often."""


@dataclass(frozen=True, slots=True)
class Framework:
    """The steps of the commands that differ between the frameworks.

    Attributes:
        caches: returns the caches of the site. It raises ``CommandFailed`` if there are none.
        name_of: returns the name of the cache that ``--cache`` gives.
        explain: runs ``why`` for a path and the lines of ``--header``, or rehearses the path.
    """

    caches: Callable[[], Iterable[Cache]]
    name_of: Callable[[str | None], str | None]
    explain: Callable[..., Report]


def add_commands(parser: ArgumentParser) -> None:
    """Add the options and commands to ``parser``. Its own options, such as Django's, may also follow a command."""
    own, cache, as_json, header = (ArgumentParser(add_help=False) for _ in range(4))
    for option in parser._actions:
        if option.dest != "help":
            option = copy(option)
            # A default would replace the value of an option before the command.
            option.default = SUPPRESS
            own._add_action(option)
    cache.add_argument(
        "--cache", metavar="NAME", help="the name, in Django also the alias (default: all caches, or the only one)"
    )
    as_json.add_argument("--json", action="store_true", default=SUPPRESS, help="print a JSON document")
    header.add_argument("--header", action="append", default=[], metavar="HEADER", help="a header: 'Name: value'")
    parser.add_argument("--json", action="store_true", help="print a JSON document instead of a table")
    parser.add_argument(
        "--watch",
        nargs="?",
        type=seconds,
        const=WATCH,
        metavar="SECONDS",
        help=f"update the table every SECONDS (default: {WATCH:g}) until Ctrl-C",
    )
    commands = parser.add_subparsers(title="commands", dest="action", metavar="COMMAND")

    def add(name: str, text: str, *options: ArgumentParser) -> ArgumentParser:
        description = f"{text[0].upper()}{text[1:]}."
        parents = [*options, as_json, own]
        command: ArgumentParser = commands.add_parser(name, help=text, description=description, parents=parents)
        return command

    add("clear", "ask all workers to clear their entries", cache)
    purge = add("purge", "remove the pages of a URL, of a directory or of a host, in all workers", cache)
    purge.add_argument("target", metavar="URL", help="a URL, a directory (https://example.com/news/*) or a host")
    rehearsal = add("rehearsal", "show which pages would have been right, before they are served", cache, header)
    rehearsal.add_argument(
        "--path", metavar="PATH", help="rehearse this path or URL, in this process, for a visitor with the headers"
    )
    pages = add("pages", "switch the HTTP cache of all workers off, to a rehearsal, or on", cache)
    pages.add_argument("target", choices=MODES, help="what the workers do with stored pages")
    add("misses", "show why look-ups miss, and the groups of keys that cost most", cache)
    compared = add("compare", "compare the time before and after the latest release", cache)
    compared.add_argument(
        "--before",
        type=moment,
        metavar="TIME",
        help="a time of the last 24 hours (14:05) or a date and time (2026-11-26T14:05), in this terminal's time zone "
        "or with another one (14:05+02:00, 2026-11-26T14:05Z), instead of the release",
    )
    keys = add("keys", "list the keys that match a pattern, in all workers", cache)
    tags = add("tags", "list the tags that match a pattern, with the number of their entries", cache)
    for command in (keys, tags):
        command.add_argument("target", nargs="?", default="*", metavar="PATTERN", help="a pattern (default: *)")
    get = add("get", "show one entry in each worker: the time left, its size, type and tags", cache)
    get.add_argument("--show-value", action="store_true", help="show the value")
    get.add_argument("target", metavar="KEY", help="the key, as the cache stores it")
    delete = add("delete", "delete one key, or the entries of a pattern or of a tag, in all workers", cache)
    delete.add_argument("target", nargs="?", metavar="KEY", help="the key, as the cache stores it")
    delete.add_argument("--pattern", help="delete the keys that match a pattern")
    delete.add_argument("--tag", help="delete the entries of a tag")
    why = add("why", "explain whether a page is stored, for how long, on what it depends, and why not", header)
    why.add_argument("target", metavar="PATH", help="the path, or a URL with a host of the site")


def run(options: Mapping[str, Any], framework: Framework, out: TextIO, *, styled: bool = True) -> None:
    """Run the command of the parsed ``options``; without one, show the figures.

    Args:
        styled: whether tables may use bold text.

    Raises:
        CommandFailed: if the command cannot be run, or not by all workers, for the reason in the message.
    """
    action, as_json, every = options["action"], options["json"], options["watch"]
    if every is not None and action is not None:
        raise CommandFailed(f"--watch is only for the figures: leave it out of {action}.")
    if every is not None and as_json:
        raise CommandFailed("--json prints one document: leave --watch out.")
    try:
        if every is not None:
            caches = [*framework.caches()]
            console.watch(lambda: site_commands.figures(caches), out, every, styled=styled)
        else:
            console.show(_report(action, options, framework), out, as_json=as_json, styled=styled)
    except (NotPurgeable, FileUnusable) as error:
        raise CommandFailed(str(error)) from None


def _report(action: str | None, options: Mapping[str, Any], framework: Framework) -> Report:
    if action == "why":
        return framework.explain(options["target"], options["header"], rehearses=False)
    if action == "rehearsal" and options["path"] is not None:
        if options["cache"] is not None:
            raise CommandFailed("--cache is not for --path: the cache in front of the application is rehearsed.")
        return framework.explain(options["path"], options["header"], rehearses=True)
    if action == "rehearsal" and options["header"]:
        raise CommandFailed("--header is only for --path: the results are those of all visitors.")
    caches = [*framework.caches()]
    name = framework.name_of(options.get("cache"))
    if action is None:
        return site_commands.figures(caches)
    if action in entry_commands.ACTIONS:
        return entry_commands.run(action, options, caches, name)
    if action == "rehearsal":
        return page_commands.rehearsal(caches, name)
    if action == "pages":
        return page_commands.change_mode(caches, name, options["target"])
    if action == "compare":
        return site_commands.compare(caches, name, options["before"])
    if action == "purge":
        return site_commands.purge(caches, name, options["target"])
    return COMMANDS[action](caches, name)


def seconds(text: str) -> float:
    """Return the number of seconds that an option gives.

    Raises:
        ArgumentTypeError: if ``text`` is not a number above 0.
    """
    with suppress(ValueError):
        found = float(text)
        if isfinite(found) and found > 0:
            return found
    raise ArgumentTypeError(f"must be a number of seconds above 0, not {text!r}")


def moment(text: str) -> float:
    """Return the time that an option gives, in seconds since 1970: the last one with these hours and minutes. Without a
    zone, it is a time of the terminal's.

    Raises:
        ArgumentTypeError: if ``text`` is not a time.
    """
    with suppress(ValueError):
        return datetime.fromisoformat(text).timestamp()
    with suppress(ValueError):
        found = time.fromisoformat(text)
        now = datetime.now(found.tzinfo)
        # An hour of the day on which the summer time ends comes twice.
        days = [datetime.combine(day, found) for day in (now, now - timedelta(days=1))]
        times = [each.replace(fold=fold).timestamp() for each in days for fold in (1, 0)]
        return next(each for each in times if each <= now.timestamp())
    raise ArgumentTypeError(f"must be a time such as 14:05, 14:05+02:00 or 2026-11-26T14:05Z, not {text!r}")
