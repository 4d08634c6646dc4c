"""The commands that start the two sites on each server, and those that look at them."""

import json

GUNICORN = ["-m", "gunicorn", "--bind=127.0.0.1:{port}"]
PRELOAD = [*GUNICORN, "--preload", "-k", "gevent", "--log-level", "warning"]
UWSGI = "import sys, pyuwsgi; pyuwsgi.run(sys.argv[1:])"
# Not on uvloop: ``tests.waiting`` finds the tasks of the loops of asyncio.
UVICORN = ["-m", "uvicorn", "--loop=asyncio", "--backlog=1000", "--port={port}"]
WAITRESS = ["-m", "waitress", "--threads=32", "--connection-limit=1000", "--backlog=1000", "--listen=127.0.0.1:{port}"]
SPECIAL = ["-m", "tests.servers.special"]

COMMANDS = {
    "waitress": [*WAITRESS, "{site}:application"],
    "uvicorn": [*UVICORN, "--log-level=warning", "{site}:asgi_application"],
    "gunicorn sync": [*GUNICORN, "--workers=2", "{site}:application"],
    "gevent": [*SPECIAL, "gevent", "{port}"],
    # gevent patches in the worker, after the site was loaded in the parent; in one of the two also used there.
    "preload": [*PRELOAD, "{site}:application"],
    "preload_used": [*PRELOAD, "tests.servers.used_site:application"],
    # Patched in the middle of its life, without a fork: by gevent when its threads run.
    "gevent_late": [*SPECIAL, "gevent_late", "{port}"],
    "eventlet_late": [*SPECIAL, "eventlet_late", "{port}"],
    "fork": [*SPECIAL, "fork", "{port}", "{other_port}"],
    "uwsgi": ["-c", UWSGI, "--http-socket=127.0.0.1:{port}", "--module={site}:application", "--die-on-term"],
    # Where no thread can be started.
    "refused": [*SPECIAL, "refused", "{port}"],
}

MANAGE = {
    "django": ["-m", "tests.servers.django_site", "wheelcache"],
    "flask": ["-m", "flask", "--app=tests.servers.flask_site:application", "wheelcache"],
}
"""The command of each framework, as arguments of Python."""


def command_of(framework, server):
    return [part.replace("{site}", f"tests.servers.{framework}_site") for part in COMMANDS[server]]


def environment(site_wide=False, **options):
    return {"SITE_OPTIONS": json.dumps(options), "SITE_WIDE": f"{site_wide:d}"}
