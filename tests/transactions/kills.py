"""A run in which processes are killed by SIGKILL at a random moment of a COMMIT, while others read the same rows
through a cache, and the check of what these have kept.

``python -m tests.transactions.kills KILLS --cache host`` prints how many processes were killed, how many of their
transactions were committed, and how many reads after the end of a transaction, and some time later, were old.
"""

import argparse
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import django
import psycopg
from django.conf import settings
from django.core.cache import caches
from django.core.signals import request_finished
from django.db import connection, transaction

from tests.postgresql_server import PostgresqlServer
from tests.redis_server import RedisServer
from tests.waiting import until
from wheelcache.host_cache import write_moments

READERS, TOGETHER = 2, 20
"""How many processes read, and how many are killed at the same time, each while it commits a row of its own."""

TABLES = """
    CREATE TABLE row (key integer PRIMARY KEY, version integer NOT NULL);
    CREATE FUNCTION slow() RETURNS trigger AS 'BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END' LANGUAGE plpgsql;
    CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON row DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION slow();
"""

forking = multiprocessing.get_context("fork")


def load(key):
    with connection.cursor() as cursor:
        cursor.execute("SELECT version FROM row WHERE key = %s", [key])
        return cursor.fetchone()[0]


def by_get_and_set(cache, key):
    value = cache.get(f"got-{key}")
    if value is None:
        value = load(key)
        cache.set(f"got-{key}", value, None, tags=[f"tag-{key}"])
    return value


def by_get_or_set(cache, key):
    return cache.get_or_set(f"loaded-{key}", partial(load, key), None, tags=[f"tag-{key}"])


WAYS = [by_get_and_set, by_get_or_set]


def read(current, asked):
    """Read the current rows in a loop. For each list of rows from ``asked``, send the versions that are read."""
    cache = caches["default"]
    while True:
        if asked.poll():
            keys = asked.recv()
            if keys is None:
                return
            asked.send([(key, way(cache, key)) for key in keys for way in WAYS])
        for key in range(current.value, current.value + TOGETHER):
            for way in WAYS:
                way(cache, key)
        request_finished.send(sender=None)
        time.sleep(0.005)


def commit(key, events, tells):
    """Change a row and delete its values. Send the number of the database's process at the beginning of the COMMIT."""
    execute = connection._commit

    def commit_now():
        events.send(connection.connection.info.backend_pid)
        execute()

    connection.connect()
    connection._commit = commit_now
    cache = caches["default"]
    with transaction.atomic():
        connection.cursor().execute("UPDATE row SET version = 1 WHERE key = %s", [key])
        if tells == "tag":
            cache.delete_tags(f"tag-{key}")
        else:
            cache.delete_many([f"got-{key}", f"loaded-{key}"])
    events.send(None)


def kills(count, cache):
    with ExitStack() as stack:
        postgresql = stack.enter_context(PostgresqlServer())
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        options = {"TRANSACTIONS": True, "FIGURES_DIR": None}
        made = {"BACKEND": "wheelcache.django_backend.HostCache", "LOCATION": str(place / "host"), "OPTIONS": options}
        store = {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}
        if cache == "redis":
            redis = stack.enter_context(RedisServer())
            made = {"BACKEND": "wheelcache.django_backend.TieredCache", "OPTIONS": {**options, "L2": "store"}}
            store = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": redis.url}
        database = {"ENGINE": "django.db.backends.postgresql", "NAME": postgresql.database}
        database |= {"USER": postgresql.user, "HOST": postgresql.host, "PORT": postgresql.port, "CONN_MAX_AGE": None}
        settings.configure(CACHES={"default": made, "store": store}, DATABASES={"default": database})
        # The processes of this run share a host cache, although a test has started them.
        os.environ["PYTEST_XDIST_WORKER"] = ""
        django.setup()
        rows = psycopg.connect(
            host=postgresql.host, port=postgresql.port, user=postgresql.user, dbname="postgres", autocommit=True
        )
        stack.enter_context(rows)
        rows.execute(TABLES)
        rows.execute("INSERT INTO row SELECT key, 0 FROM generate_series(0, %s) AS key", [count + TOGETHER])
        current = forking.Value("i", 0)
        readers = []
        for _ in range(READERS):
            here, there = forking.Pipe()
            process = forking.Process(target=read, args=(current, there), daemon=True)
            process.start()
            readers.append((process, here))
        try:
            return run(count, rows, current, [asked for _, asked in readers])
        finally:
            for process, _ in readers:
                process.kill()
                process.join()


def run(count, rows, current, readers):
    # No mark of a killed process is left after this time.
    marked = write_moments.MARKED / 1e9 + 0.5
    chosen, truth = random.Random(5), {}
    found = {"kills": 0, "committed": 0, "reads": 0, "old": 0, "old later": 0}

    def old(keys):
        for asked in readers:
            asked.send(keys)
        answers = [answer for asked in readers for answer in asked.recv()]
        found["reads"] += len(answers)
        return sum(version != truth[key] for key, version in answers)

    def kill(key):
        here, there = forking.Pipe()
        process = forking.Process(target=commit, args=(key, there, chosen.choice(["tag", "keys"])))
        process.start()
        server = here.recv()
        time.sleep(chosen.random() * 0.5)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        # It may have ended its COMMIT before. The other end of the pipe is open here, so ``poll`` reports no end.
        is_during_commit = not here.poll()
        assert until(partial(has_ended, rows, server))
        return is_during_commit

    with ThreadPoolExecutor(TOGETHER) as pool:
        for first in range(0, count, TOGETHER):
            current.value = first
            keys = range(first, min(first + TOGETHER, count))
            found["kills"] += sum(pool.map(kill, keys))
            truth |= rows.execute("SELECT key, version FROM row WHERE key = ANY(%s)", [[*keys]]).fetchall()
            found["old"] += old(keys)
            print(json.dumps(found), file=sys.stderr, flush=True)
    found["committed"] = sum(truth.values())
    time.sleep(marked)
    # The first reads find out that the processes were killed, the second ones keep values again.
    for _ in range(2):
        found["old later"] += old([*truth])
        time.sleep(marked)
    found["old later"] += old([*truth])
    return found


def has_ended(rows, server):
    return rows.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", [server]).fetchone() is None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kills", type=int)
    parser.add_argument("--cache", choices=["host", "redis"], default="host")
    parser.add_argument("--server-time", type=float, default=write_moments.MARKED / 1e9)
    given = parser.parse_args()
    write_moments.MARKED = int(given.server_time * 1e9)
    print(json.dumps(kills(given.kills, given.cache)))


if __name__ == "__main__":
    main()
