"""A run of four processes that read and write rows of a database through a cache, while processes and connections are
killed, and the check of what they have read.

``python -m tests.transactions.history READS --database postgresql --cache wheel`` prints the counts of a run of about
READS reads of cached values, and the first wrong reads.
"""

import argparse
import faulthandler
import json
import logging
import multiprocessing
import os
import random
import signal
import sqlite3
import sys
import tempfile
import threading
import time
import traceback
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import django
import psycopg
from django.conf import settings

from tests.postgresql_server import PostgresqlServer
from tests.redis_server import RedisServer
from tests.transactions.callers import Caller
from tests.transactions.records import Check, Recorder, recorded
from tests.waiting import PATIENCE, join

PROCESSES, THREADS = 4, 3

TABLES = """
    CREATE TABLE row (key integer PRIMARY KEY, version bigint NOT NULL, number bigint NOT NULL);
    CREATE TABLE written (key integer, writer bigint, version bigint, number bigint, PRIMARY KEY (key, writer));
    INSERT INTO row VALUES (0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 0, 0), (4, 0, 0), (5, 0, 0);
"""

forking = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Setting:
    """What runs.

    Attributes:
        options: those of the cache.
        invalidations: names of methods of ``Caller``.
        processes: how many processes run at the same time.
        guards_sets: whether the cache refuses a value whose key was deleted between the ``get`` and the ``set``.
        late: seconds within which writes reach other processes.
    """

    database: str = "sqlite"
    backend: str = "WheelCache"
    options: tuple = ()
    invalidations: tuple = ("delete", "delete_many", "delete_tags")
    processes: int = PROCESSES
    guards_sets: bool = True
    late: float = 0.0


ALL = (*("delete", "delete_many", "delete_tags") * 5, "delete_pattern", "clear")
WAITS = ("FILL_WAIT", 0.5)
CACHES = {
    "host": Setting(backend="HostCache", invalidations=ALL, guards_sets=False),
    "leases": Setting(backend="HostCache", options=(WAITS,), invalidations=ALL, guards_sets=False),
    # Less than the values of all keys: values are evicted, also from the overlay of a transaction.
    "small": Setting(backend="HostCache", options=(("MAX_ENTRIES", 5),), invalidations=ALL, guards_sets=False),
    "threads": Setting(invalidations=ALL, processes=1, guards_sets=False),
    # A value that was computed before a delete in another process may reach the store after it; one that was computed
    # before a drop of its tag does not.
    "tracked": Setting(backend="TieredCache", invalidations=("delete_tags",), late=2.0),
}


class Sqlite:
    """A database in a file."""

    kills = ()

    def __init__(self, folder):
        self._path = folder / "database.sqlite3"
        with self._connected() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(TABLES)
        options = {"timeout": 20, "init_command": "PRAGMA synchronous = OFF"}
        self.django_database = {"ENGINE": "django.db.backends.sqlite3", "NAME": self._path, "OPTIONS": options}

    def committed(self):
        with self._connected() as connection:
            return connection.execute("SELECT key, version, number FROM written").fetchall()

    @contextmanager
    def _connected(self):
        connection = sqlite3.connect(self._path)
        try:
            yield connection
        finally:
            connection.close()


class Postgresql:
    """A database on a server of its own."""

    def __init__(self, server):
        self._server = server
        self._server.connect().execute(TABLES)
        self.kills = (*(server.terminate_connections,) * 4, server.restart)
        self.django_database = server.django_database

    def committed(self):
        return self._server.connect().execute("SELECT key, version, number FROM written").fetchall()


def database_of(setting, folder, stack):
    if setting.database == "sqlite":
        return Sqlite(folder)
    server = PostgresqlServer(deadlock_timeout="50ms", lock_timeout="2s", idle_in_transaction_session_timeout="10s")
    return Postgresql(stack.enter_context(server))


class Processes:
    """The processes of a run. Each that is killed is replaced.

    Args:
        setting: a ``Setting``.
        folder: a folder for their records.
        configure: sets Django up in each process.
    """

    def __init__(self, setting, folder, seed, configure):
        self._setting = setting
        self._folder = folder
        self._seed = seed
        self._configure = configure
        self._random = random.Random(seed)
        self._numbers = count(1)
        self._goes_on = forking.Value("b", 1, lock=False)
        # By the number of the process, since the reads of a killed one count.
        self._reads = forking.Array("q", 10_000, lock=False)
        self.running = {}
        self.killed = 0
        for _ in range(setting.processes):
            self.start()

    def start(self):
        number = next(self._numbers)
        self.running[number] = forking.Process(target=self._work, args=(number,), daemon=True)
        self.running[number].start()

    def reads(self):
        """Return how many cached values were read so far."""
        return sum(self._reads)

    def kill_one(self):
        """Kill one of the processes with SIGKILL."""
        number = self._random.choice(list(self.running))
        process = self.running.pop(number)
        process.kill()
        join(process)
        self.killed += 1
        self.start()

    def stop(self):
        """End all processes. Return the number of those that did not end."""
        self._goes_on.value = 0
        for process in self.running.values():
            process.join(PATIENCE)
        stuck = [process for process in self.running.values() if process.is_alive()]
        for process in stuck:
            # It prints the stacks of its threads.
            os.kill(process.pid, signal.SIGABRT)
            join(process)
        return len(stuck)

    def records(self):
        for path in self._folder.glob("*.records"):
            yield from recorded(path)

    def errors(self):
        """Return the traceback of each caller that ended with an error, which is not one of the database."""
        return [path.read_text() for path in self._folder.glob("*.error")]

    @staticmethod
    def _callers(number):
        return range(number * THREADS, (number + 1) * THREADS)

    def _work(self, number):
        # Caches and connections begin in this process: the parent has none.
        self._configure()
        recorder = Recorder(self._folder / f"{number}.records")
        sys.setswitchinterval(2e-4)
        callers = [Caller(each, self._setting, recorder, self._seed) for each in self._callers(number)]

        def goes_on():
            self._reads[number] = sum(caller.reads for caller in callers)
            return self._goes_on.value

        def work(caller):
            try:
                caller.work(goes_on)
            except BaseException:
                (self._folder / f"{caller.number}.error").write_text(traceback.format_exc())

        threads = [threading.Thread(target=work, args=(caller,), daemon=True) for caller in callers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def configure(setting, folder, database, redis_location):
    """Configure Django in a process of the run."""
    faulthandler.enable()
    logging.disable()
    options = {"FIGURES_DIR": None, **dict(setting.options)}
    caches = {"redis": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": redis_location}}
    if setting.backend == "TieredCache":
        options["L2"] = "redis"
    backend = f"wheelcache.django_backend.{setting.backend}"
    # A host cache of another run has values of another database. The processes of this run share one, although a test
    # has started them.
    os.environ["PYTEST_XDIST_WORKER"] = ""
    location = str(folder / "host") if setting.backend == "HostCache" else "history"
    caches["default"] = {"BACKEND": backend, "LOCATION": location, "OPTIONS": options}
    settings.configure(DATABASES={"default": {**database, "CONN_MAX_AGE": None}}, CACHES=caches, USE_TZ=True)
    django.setup()


def run(setting, reads, seed=0):
    """Run until about ``reads`` cached values were read. Return the counts, and descriptions of faults."""
    rnd = random.Random(seed)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wheelcache-history-")))
        location = ""
        if setting.backend == "TieredCache":
            redis = stack.enter_context(RedisServer())
            location = f"redis://{redis.host}:{redis.port}"
        database = database_of(setting, folder, stack)
        processes = Processes(
            *(setting, folder, seed), lambda: configure(setting, folder, database.django_database, location)
        )
        try:
            while processes.reads() < reads and not processes.errors():
                time.sleep(1 + 2 * rnd.random())
                with suppress(psycopg.OperationalError):
                    rnd.choice([*[processes.kill_one] * 5, *database.kills])()
        finally:
            stuck = processes.stop()
        check = Check(processes.records(), database.committed(), setting.late)
        counts = {
            **check.run(),
            "stuck": stuck,
            "errors": len(processes.errors()),
            "killed": processes.killed,
        }
        return counts, [*processes.errors()[:3], *map(str, check.faults[:10])]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reads", type=int)
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--cache", choices=CACHES, default="host")
    parser.add_argument("--without-transactions", action="store_true", help="the cache does not follow transactions")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    setting = replace(CACHES[given.cache], database=given.database)
    if not given.without_transactions:
        setting = replace(setting, options=(*setting.options, ("TRANSACTIONS", True)))
    counts, faults = run(setting, given.reads, given.seed)
    print(json.dumps(counts))
    print(*faults, sep="\n", file=sys.stderr)


if __name__ == "__main__":
    main()
