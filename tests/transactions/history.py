"""A run of four processes that read and write rows of a PostgreSQL through a cache, while processes and connections are
killed, and the check of what they have read.

``python -m tests.transactions.history host READS`` prints the counts of a run of about READS reads of cached values,
and the first wrong reads.
"""

import json
import logging
import multiprocessing
import os
import random
import sys
import tempfile
import threading
import time
import traceback
from contextlib import ExitStack, suppress
from itertools import chain, count
from pathlib import Path
from typing import NamedTuple

import django
import psycopg
from django.conf import settings

from tests.postgresql_server import PostgresqlServer
from tests.redis_server import RedisServer
from tests.transactions.callers import Caller
from tests.transactions.records import Check, Recorder, recorded
from tests.waiting import join

PROCESSES, THREADS, SEED = 4, 3, 0

TABLES = """
    CREATE TABLE row (key integer PRIMARY KEY, version bigint NOT NULL, number bigint NOT NULL);
    CREATE TABLE written (key integer, writer bigint, version bigint, number bigint, PRIMARY KEY (key, writer));
    INSERT INTO row VALUES (0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 0, 0), (4, 0, 0), (5, 0, 0);
"""

forking = multiprocessing.get_context("fork")

ALL = (*("delete", "delete_many", "delete_tags") * 5, "delete_pattern", "clear")


class Setting(NamedTuple):
    """What runs.

    Attributes:
        options: those of the cache.
        invalidations: names of ``INVALIDATIONS``.
        processes: how many processes run at the same time.
        late: seconds within which writes reach other processes. If there are any, the cache refuses a value whose tag
            was dropped between the ``get`` and the ``set``.
    """

    backend: str
    options: dict
    invalidations: tuple = ALL
    processes: int = PROCESSES
    late: float = 0.0


FOLLOWS = {"TRANSACTIONS": True}
CACHES = {
    "host": Setting("HostCache", FOLLOWS),
    "leases": Setting("HostCache", {**FOLLOWS, "FILL_WAIT": 0.5}),
    # Less than the values of all keys: values are evicted, also from the overlay of a transaction.
    "small": Setting("HostCache", {**FOLLOWS, "MAX_ENTRIES": 5}),
    "threads": Setting("WheelCache", FOLLOWS, processes=1),
    # A value that was computed before a delete in another process may reach the store after it; one that was computed
    # before a drop of its tag does not.
    "tracked": Setting("TieredCache", {**FOLLOWS, "L2": "redis"}, ("delete_tags",), late=2.0),
    "without transactions": Setting("HostCache", {}),
}


class Processes:
    """The processes of a run. Each that is killed is replaced.

    Args:
        configure: sets Django up in each process.
        folder: a folder for their records.
    """

    def __init__(self, setting, folder, configure):
        self._setting = setting
        self._folder = folder
        self._configure = configure
        self._random = random.Random(SEED)
        self._numbers = count(1)
        self._goes_on = forking.Value("b", 1, lock=False)
        # By the number of the process, since the reads of a killed one count.
        self._reads = forking.Array("q", 10_000, lock=False)
        self._running = []
        for _ in range(setting.processes):
            self._start()

    def _start(self):
        process = forking.Process(target=self._work, args=(next(self._numbers),), daemon=True)
        self._running.append(process)
        process.start()

    def reads(self):
        """Return how many cached values were read so far."""
        return sum(self._reads)

    def kill_one(self):
        """Kill one of the processes with SIGKILL."""
        process = self._running.pop(self._random.randrange(len(self._running)))
        process.kill()
        join(process)
        self._start()

    def stop(self):
        """End all processes. Those that do not end are an error."""
        self._goes_on.value = 0
        for process in self._running:
            join(process)

    def errors(self):
        """Return the traceback of each caller that ended with an error, which is not one of the database."""
        return [path.read_text() for path in self._folder.glob("*.error")]

    def _work(self, number):
        # Caches and connections begin in this process: the parent has none.
        self._configure()
        recorder = Recorder(self._folder / f"{number}.records")
        sys.setswitchinterval(2e-4)
        callers = [Caller(number * THREADS + each, self._setting, recorder, SEED) for each in range(THREADS)]

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


def configure(setting, folder, database, redis):
    """Configure Django in a process of the run."""
    logging.disable()
    # A host cache of another run has values of another database. The processes of this run share one, although a test
    # has started them.
    os.environ["PYTEST_XDIST_WORKER"] = ""
    default = {
        "BACKEND": f"wheelcache.django_backend.{setting.backend}",
        "LOCATION": str(folder / "host"),
        "OPTIONS": {"FIGURES_DIR": None, **setting.options},
    }
    store = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": redis.url}
    settings.configure(DATABASES={"default": database}, CACHES={"default": default, "redis": store}, USE_TZ=True)
    django.setup()


def main():
    """Run until about so many cached values were read. Print the counts, and the first faults."""
    setting, reads = CACHES[sys.argv[1]], int(sys.argv[2])
    chosen = random.Random(SEED)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wheelcache-history-")))
        redis = stack.enter_context(RedisServer())
        server = stack.enter_context(
            PostgresqlServer(deadlock_timeout="50ms", lock_timeout="2s", idle_in_transaction_session_timeout="10s")
        )
        server.connect().execute(TABLES)
        processes = Processes(setting, folder, lambda: configure(setting, folder, server.django_database, redis))
        kills = [*[processes.kill_one] * 5, *[server.terminate_connections] * 4, server.restart]
        try:
            while processes.reads() < reads and not processes.errors():
                time.sleep(1 + 2 * chosen.random())
                with suppress(psycopg.OperationalError):
                    chosen.choice(kills)()
        finally:
            processes.stop()
        written = server.connect().execute("SELECT key, version, number FROM written").fetchall()
        check = Check(chain.from_iterable(map(recorded, folder.glob("*.records"))), written, setting.late)
        counts = {**check.counts, "reads": processes.reads()}
        print(json.dumps({**counts, "errors": processes.errors()[:3], "faults": list(map(str, check.faults[:10]))}))


if __name__ == "__main__":
    main()
