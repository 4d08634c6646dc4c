"""Makes the user that may see the figures of the cache, on a developer's own machine."""

from typing import Any, Final

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser

NAME: Final = "demo"
PASSWORD: Final = "demo"


class Command(BaseCommand):
    help = "Make the staff user demo with the password demo, and say where to log in."
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", default="8000", help="where the site will be, to say so (%(default)s)")

    def handle(self, *, port: str, **options: Any) -> None:
        make_demo_user()
        self.stdout.write(
            f"The figures of the cache are at http://localhost:{port}/wheelcache/, user {NAME}, password {PASSWORD}: "
            "this is for a developer's own machine."
        )


def make_demo_user() -> None:
    """Unless it is there."""
    if not settings.DEBUG:
        raise CommandError("A user whose password everybody knows is for development: DEBUG is False.")
    user, is_new = User.objects.get_or_create(username=NAME, defaults={"is_staff": True})
    if is_new:
        user.set_password(PASSWORD)
        user.save()
