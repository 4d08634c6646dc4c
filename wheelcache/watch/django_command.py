"""``manage.py wheelcache``: show the figures of this site's caches across its workers, or run a command in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, TextIO, cast

from asgiref.sync import async_to_sync
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.servers.basehttp import get_internal_wsgi_application
from django.core.signals import got_request_exception
from django.utils.module_loading import import_string

from wheelcache.cache import Cache
from wheelcache.pages import why
from wheelcache.pages.django_pages import cache_for_commands
from wheelcache.pages.local_requests import ask_asgi, ask_wsgi
from wheelcache.watch import command_line
from wheelcache.watch.console import CommandFailed, Report
from wheelcache.watch.django_caches import engines, name_of

HOW_TO_WRAP: Final = """\
  MIDDLEWARE = ["wheelcache.django_backend.PageMiddleware", ...]  # settings.py: the first one
  application = page_cache().wsgi(application)  # wsgi.py: the last line

page_cache is in wheelcache.pages.django_pages. In asgi.py, the line is page_cache().asgi(application), and this
command needs ASGI_APPLICATION = "mysite.asgi.application" in settings.py."""


class Command(BaseCommand):
    help = command_line.DESCRIPTION
    # The command is for a site that is already running.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        command_line.add_commands(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        # Rich writes the line endings itself.
        self.stdout.ending = ""
        framework = command_line.Framework(_caches, name_of, _explain)
        try:
            command_line.run(options, framework, cast(TextIO, self.stdout), styled=not options["no_color"])
        except CommandFailed as reason:
            raise CommandError(str(reason)) from None


def _caches() -> list[Cache]:
    try:
        caches = engines() or cache_for_commands()
    except ImproperlyConfigured as error:
        # For instance, the directory of the figures belongs to the user that runs the site, not to this user.
        raise CommandFailed(str(error)) from None
    if not caches:
        raise CommandFailed("None of CACHES is a cache of wheelcache.django_backend, and no pages are cached.")
    return caches


def _explain(target: str, header_lines: Iterable[str], *, rehearses: bool) -> Report:
    host = next((host.lstrip(".") for host in settings.ALLOWED_HOSTS if host != "*"), "localhost")
    base = f"{'https' if settings.SECURE_SSL_REDIRECT else 'http'}://{host}"
    connect = got_request_exception.connect
    return why.run(target, header_lines, base, _applications(), HOW_TO_WRAP, connect, rehearses=rehearses)


def _applications() -> Iterator[Callable[[], why.Ask]]:
    yield lambda: partial(ask_wsgi, get_internal_wsgi_application())
    path = getattr(settings, "ASGI_APPLICATION", None)
    if path is not None:
        yield lambda: async_to_sync(partial(ask_asgi, import_string(path)))
