"""A run of ``COHERENCE = "database"`` under failures: ``python -m tests.django_backend.database_chaos 1000000``.

Two machines with two readers and a writer each share a PostgreSQL. A writer changes a row and deletes its key in one
block, and rolls every seventh block back. A reader gets the key, or loads the row. Meanwhile readers are killed and
stopped, and the server is stopped, killed, paused, loses its connections or one of its backends, and is replaced by one
that is restored from a dump. A ledger in shared memory has the time at which each version was acknowledged, or was
found to be lost: by a restore, or by a crash if commits do not wait for the disk (``--asynchronous``). A read is

- a *phantom* if its version was rolled back or never written, or was lost more than two seconds before the read began,
- *outdated* if a newer version was acknowledged more than two seconds before the read began, and is not lost.

``--event "kill backend" --rounds 20`` lets only this event happen, at least so often. ``--fault silent`` drops the
notices of a machine, and ``--fault trusting`` lets readers vouch forever: with either, the run must find wrong reads.
"""

import argparse
import json
import mmap
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tests.postgresql_server import PostgresqlServer
from tests.scripts import ROOT
from tests.waiting import PATIENCE, until

KEYS = 40
VERSIONS = 20_000
LATEST = 2.0
"""Seconds after which a read must return a new version."""

EVENTS = (
    *("kill reader", "stop reader", "pause server", "stop server", "kill server", "end connections"),
    *("kill backend", "restore dump"),
)

ASYNCHRONOUS = {"synchronous_commit": "off", "wal_writer_delay": "10s"}
"""Settings of a server that loses its last commits when it crashes."""


class Ledger:
    """What the writers did, in a file that all processes of the run map.

    Attributes:
        times: by key and version, the time of the acknowledgement; 0 if there is none. Negative from the time on at
            which the version was found to be lost, or -1 if it was rolled back.
    """

    SIZE = 8 * KEYS * VERSIONS

    def __init__(self, path):
        with open(path, "r+b" if os.path.exists(path) else "w+b") as file:
            file.truncate(self.SIZE)
            self.times = memoryview(mmap.mmap(file.fileno(), self.SIZE)).cast("d")

    def write(self, key, version, at):
        self.times[key * VERSIONS + version] = at

    def judge(self, key, version, began):
        """Return "phantom", "outdated" or "right"."""
        start = key * VERSIONS
        if self.times[start + version] < 0 and began + self.times[start + version] > LATEST:
            return "phantom"
        for newer in range(version + 1, min(version + 50, VERSIONS)):
            at = self.times[start + newer]
            if at > 0:
                return "outdated" if began - at > LATEST else "right"
            if at == 0:
                return "right"
        return "right"


def worker(directory, machine, role, seed, databases, fault):
    from tests.machine_process import is_reader, set_up

    set_up(machine, databases)
    from django.core.cache import caches
    from django.db import connection, transaction

    from wheelcache.coherence.shared_stamps import SharedStamps
    from wheelcache.django_backend.database_bus import DatabaseBus

    if fault == "silent":
        DatabaseBus.publish = lambda self, notice: None
    if fault == "trusting":
        SharedStamps.vouch = lambda self, until: self._trust.__setitem__(0, 2**63)
    cache, ledger, chance = caches["default"], Ledger(f"{directory}/ledger"), random.Random(seed)
    counts, stop = Counter(), Path(directory, "stop")
    seat = Path(directory, f"reader-{Path(machine).name}")

    def row(key):
        with connection.cursor() as cursor:
            cursor.execute("SELECT version FROM chaos WHERE key = %s", [key])
            return cursor.fetchone()[0]

    def read(key):
        began, loaded = time.monotonic(), []
        version = cache.get_or_set(f"k{key}", lambda: loaded.append(1) or row(key))
        verdict = ledger.judge(key, version, began)
        if verdict == "outdated":
            # Unless the newer version is lost, which its writer may not have found yet.
            verdict = ledger.judge(key, version, began) if row(key) > version else "right"
        counts["reads"] += 1
        counts["hits"] += not loaded
        counts[verdict] += 1

    def publish():
        # A process may be killed at any point.
        Path(directory, f"new-{os.getpid()}").write_text(json.dumps(counts))
        os.replace(Path(directory, f"new-{os.getpid()}"), Path(directory, f"counts-{os.getpid()}"))

    class RolledBack(Exception):
        pass

    versions = dict.fromkeys(range(KEYS), 0)

    def write(key):
        version = versions[key] = versions[key] + 1
        try:
            with transaction.atomic():
                with connection.cursor() as cursor:
                    cursor.execute("UPDATE chaos SET version = %s WHERE key = %s", [version, key])
                cache.delete(f"k{key}")
                time.sleep(chance.random() * 0.01)
                if chance.random() < 1 / 7:
                    raise RolledBack
        except RolledBack:
            ledger.write(key, version, -1)
        except Exception:
            # It is unknown whether the server has committed, and whether it has kept what it committed.
            while not stop.exists():
                with suppress(Exception):
                    connection.close()
                    found = {each: row(each) for each in own}
                    break
                time.sleep(0.05)
            else:
                return
            for each, kept in found.items():
                for later in range(kept + 1, versions[each] + 1):
                    if ledger.times[each * VERSIONS + later] >= 0:
                        counts["lost"] += ledger.times[each * VERSIONS + later] > 0
                        ledger.write(each, later, -time.monotonic())
            if found[key] == version:
                ledger.write(key, version, time.monotonic())
            counts["errors"] += 1
        else:
            ledger.write(key, version, time.monotonic())
            counts["commits"] += 1

    own = [key for key in range(KEYS) if key % 2 == (Path(machine).name == "b")]
    while not stop.exists():
        for _ in range(20):
            try:
                if role == "writer":
                    write(chance.choice(own))
                    time.sleep(0.002)
                else:
                    read(chance.randrange(KEYS))
            except Exception:
                counts["errors"] += 1
                connection.close()
                time.sleep(0.02)
        if role == "reader":
            # More reads a second would need a processor for each reader.
            time.sleep(0.02)
            if is_reader():
                seat.write_text(str(os.getpid()))
            publish()
    publish()


class Run:
    """A run of two machines over a server."""

    def __init__(self, server, directory, *, seed=1, fault=None, databases=None):
        self._server = server
        self._directory = Path(directory)
        self._chance = random.Random(seed)
        self._fault = fault
        self._databases = databases or {"default": server.django_database}
        self._processes = []
        Ledger(self._directory / "ledger")
        with server.connect() as connection:
            connection.execute("CREATE TABLE chaos (key int PRIMARY KEY, version int)")
            connection.execute("INSERT INTO chaos SELECT key, 0 FROM generate_series(0, %s) AS key", [KEYS - 1])

    def start(self, machine, role):
        path = self._directory / machine
        path.mkdir(mode=0o700, exist_ok=True)
        given = [str(self._directory), str(path), role, self._chance.random(), self._databases, self._fault]
        command = [sys.executable, "-m", "tests.django_backend.database_chaos", "--worker", json.dumps(given)]
        self._processes.append((subprocess.Popen(command, cwd=ROOT), machine, role))

    def counts(self):
        total = Counter()
        for path in self._directory.glob("counts-*"):
            total.update(json.loads(path.read_text()))
        return total

    def wrong(self):
        """Return the number of wrong reads."""
        counts = self.counts()
        return counts["phantom"] + counts["outdated"]

    def reader_of(self, machine):
        """Return the process that reads the notices of a machine, if it is one of the readers."""
        with suppress(OSError, ValueError):
            pid = int((self._directory / f"reader-{machine}").read_text())
            for process, _, role in self._processes:
                if process.pid == pid and role == "reader" and process.poll() is None:
                    return process
        return None

    def happens(self, event):
        """Let an event happen, and return when it is over."""
        machine = self._chance.choice("ab")
        found = self.reader_of(machine)
        match event:
            case "kill reader" if found is not None:
                found.kill()
                found.wait(PATIENCE)
                self.start(machine, "reader")
            case "stop reader" if found is not None:
                found.send_signal(signal.SIGSTOP)
                time.sleep(3)
                found.send_signal(signal.SIGCONT)
            case "pause server":
                self._server.pause()
                time.sleep(3)
                self._server.resume()
            case "stop server":
                self._server.stop()
                self._server.start()
            case "kill server":
                self._server.restart()
            case "kill backend":
                self._server.kill_backend()
            case "restore dump":
                self._server.replace_by_dump()
            case "end connections":
                self._server.terminate_connections(self._chance.choice(["wheelcache", "%"]))

    def until(self, reads, events=EVENTS):
        """Run until there were so many reads and, with a fault, a wrong one. Return the counts."""
        for machine in "ab":
            for role in ("reader", "reader", "writer"):
                self.start(machine, role)
        happened = Counter()
        try:
            # Six processes begin at the same time.
            assert until(lambda: self.counts()["reads"] > 100, 3 * PATIENCE)
            remaining = list(events)
            # On a fast machine, all reads may begin before the first write is older than a read may be.
            last = time.monotonic() + PATIENCE
            while (
                self.counts()["reads"] < reads
                or remaining
                or (self._fault and not self.wrong() and time.monotonic() < last)
            ):
                time.sleep(1 + self._chance.random())
                if events:
                    event = remaining.pop() if remaining else self._chance.choice(events)
                    self.happens(event)
                    happened[event] += 1
        finally:
            (self._directory / "stop").touch()
            for process, *_ in self._processes:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                process.kill()
                process.wait(PATIENCE)
        return {**self.counts(), "events": dict(happened)}


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("reads", type=int, nargs="?", default=100_000)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--fault", choices=["silent", "trusting"])
    arguments.add_argument("--event", choices=EVENTS)
    arguments.add_argument("--rounds", type=int, default=1)
    arguments.add_argument("--asynchronous", action="store_true")
    arguments.add_argument("--worker")
    given = arguments.parse_args()
    if given.worker:
        worker(*json.loads(given.worker))
        return
    from tests.machines import PreparedPair, migrated

    settings = ASYNCHRONOUS if given.asynchronous else {}
    with PostgresqlServer(**settings) as server, tempfile.TemporaryDirectory() as directory:
        with PreparedPair() as prepared, migrated(prepared, directory, server):
            pass
        began = time.monotonic()
        events = EVENTS if given.event is None else [given.event] * given.rounds
        counts = Run(server, directory, seed=given.seed, fault=given.fault).until(given.reads, events)
        print(json.dumps({**counts, "seconds": round(time.monotonic() - began)}))


if __name__ == "__main__":
    main()
