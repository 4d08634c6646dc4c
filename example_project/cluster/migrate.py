"""``python -m cluster.migrate``: create the tables of the site, among them the one of ``COHERENCE = "database"``."""

from django.core.management import call_command

import cluster.worker  # noqa: F401  # it configures Django

call_command("migrate", verbosity=0)
