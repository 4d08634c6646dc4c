"""A process of a Django site on one of several machines. It runs the code that it reads from its standard input."""

import json
import logging
import sys
from pathlib import Path

import django
from django.conf import settings

from tests import shared_stamps
from wheelcache.coherence import reader

IN_MEMORY = "wheelcache.django_backend.WheelCache"


def set_up(machine, databases, *, tiered=False, trust=reader.TRUST, **options):
    shared_stamps.keep_in(Path(machine))
    reader.TRUST = trust
    given = {"COHERENCE": "database", "FIGURES_DIR": None, "LOG_INTERVAL": None, **options}
    cache = {"BACKEND": IN_MEMORY, "LOCATION": "site", "OPTIONS": given, "TIMEOUT": 600}
    if tiered:
        cache["BACKEND"] = "wheelcache.django_backend.TieredCache"
        given["L2"] = "rows"
    rows = {"BACKEND": "django.core.cache.backends.db.DatabaseCache", "LOCATION": "rows", "TIMEOUT": 600}
    settings.configure(
        DATABASES=databases,
        INSTALLED_APPS=["wheelcache.django_backend"],
        CACHES={"default": cache, "rows": rows},
        USE_TZ=True,
        SECRET_KEY="machines",
    )
    # Which connection was lost, and when, is no output of a test.
    logging.getLogger("wheelcache").setLevel(logging.ERROR)
    django.setup()


def is_reader():
    """Return whether this process reads the notices for its machine."""
    from wheelcache.runtime.lifecycle import TRACKING

    return any(each.work._seat is not None for each in TRACKING)


def main():
    given = json.loads(sys.argv[1])
    set_up(given["machine"], given["databases"], **given["options"])
    from django.core.cache import caches
    from django.core.management import call_command
    from django.db import connection, connections, transaction

    names = {
        "cache": caches["default"],
        "rows": caches["rows"],
        "call_command": call_command,
        "connection": connection,
        "connections": connections,
        "is_reader": is_reader,
        "transaction": transaction,
    }
    for line in sys.stdin:
        code = json.loads(line)
        try:
            try:
                result = eval(code, names)
            except SyntaxError:
                result = exec(code, names)
            answer = [result, None]
        except Exception as error:
            answer = [None, repr(error)]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
