"""Creates a user with the permissions of the cache's dashboard, for a developer's own machine."""

from typing import Any, Final

from django.conf import settings
from django.contrib.auth.models import Permission, User
from django.core.management.base import BaseCommand, CommandError, CommandParser

NAME: Final = "demo"
PASSWORD: Final = "demo"


class Command(BaseCommand):
    help = "Create the user demo with the password demo, who may view and operate the dashboard of the cache."
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", default="8000", help="the port of the site, for the message (%(default)s)")

    def handle(self, *, port: str, **options: Any) -> None:
        make_demo_user()
        self.stdout.write(
            f"The figures of the cache are at http://localhost:{port}/wheelcache/, user {NAME}, password {PASSWORD}: "
            "this is for a developer's own machine."
        )


def make_demo_user() -> None:
    """Create the user unless it exists, and grant it all permissions of the dashboard."""
    if not settings.DEBUG:
        raise CommandError("A user with a known password is for development only, and DEBUG is False.")
    user, is_new = User.objects.get_or_create(username=NAME)
    if is_new:
        user.set_password(PASSWORD)
        user.save()
    user.user_permissions.add(*Permission.objects.filter(content_type__app_label="wheelcache"))
