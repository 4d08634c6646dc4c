"""A process of a Django site on one of several machines. It runs the code that it reads from its standard input.

It is a fork of a process that has imported Django: see ``machines.Prepared``.
"""

import json
import logging
import os
import socket
import sys
from importlib import import_module
from pathlib import Path

import django
from django.conf import settings

from tests import shared_stamps
from wheelcache.coherence import reader

IMPORTED = [
    *("django.core.cache.backends.db", "django.core.management.commands.migrate"),
    *("django.db.backends.postgresql.base", "django.db.backends.sqlite3.base", "wheelcache.django_backend"),
]

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


def serve(given):
    """Run the code of each line of the standard input, and print its result or its error."""
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


def main():
    for name in IMPORTED:
        import_module(name)
    orders = socket.socket(fileno=int(sys.argv[1]))
    while True:
        order, pipes, *_ = socket.recv_fds(orders, 65_536, 2)
        if not order:
            return
        given = json.loads(order)
        if "wait" in given:
            os.waitpid(given["wait"], 0)
            orders.sendall(b"0")
            continue
        if (pid := os.fork()) == 0:
            orders.close()
            for number, pipe in enumerate(pipes):
                os.dup2(pipe, number)
                os.close(pipe)
            serve(given)
            return
        for pipe in pipes:
            os.close(pipe)
        orders.sendall(str(pid).encode())


if __name__ == "__main__":
    main()
