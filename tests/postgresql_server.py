"""A PostgreSQL server of a test's own, on a free port, that can be killed, stopped and started again.

It syncs nothing to the disk, since only a loss of power would lose data that was not synced. Every acknowledged commit
was written, however, so a killed server has it after the next start, unless ``synchronous_commit`` is off.
"""

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg

from tests.ports import OwnServer
from tests.waiting import PATIENCE, until

DEBIAN = Path("/usr/lib/postgresql")
"""Debian keeps the programs of each version in a folder that is not in the PATH."""


def programs():
    """Return the folder of initdb and postgres, of the newest version, or None if they are not installed."""
    if found := shutil.which("postgres"):
        return Path(found).resolve().parent
    versions = sorted(DEBIAN.glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    return versions[-1].parent if versions else None


class PostgresqlServer(OwnServer):
    """``with PostgresqlServer(max_connections=20) as server: server.connect().execute("SELECT 1")``

    Args:
        settings: parameters of postgresql.conf.
    """

    user = database = "postgres"

    def __init__(self, **settings):
        if programs() is None:
            raise RuntimeError("these tests need PostgreSQL in the PATH or in /usr/lib/postgresql: make packages")
        fixed = {"listen_addresses": self.host, "port": "{port}", "unix_socket_directories": "{folder}"}
        settings = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "32MB", **fixed, **settings}
        options = [f"--{name}={value}" for name, value in settings.items()]
        # initdb and postgres refuse to run as root.
        user = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
        super().__init__([programs() / "postgres", "-D", "{folder}/data", *options], **user)
        if user:
            shutil.chown(self._folder, "postgres", "postgres")

    def __enter__(self):
        options = ["--auth", "trust", "--username", self.user, "--encoding", "UTF8", "--locale", "C", "--no-sync"]
        command = [programs() / "initdb", "--pgdata", self._folder / "data", *options]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True, cwd=self._folder, **self._given)
        return super().__enter__()

    @property
    def django_database(self):
        """The server as an entry of Django's DATABASES."""
        place = {"HOST": self.host, "PORT": self.port, "USER": self.user, "NAME": self.database}
        return {"ENGINE": "django.db.backends.postgresql", **place}

    def stop(self):
        """Shut the server down as its operator does: roll open transactions back and close every connection."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(PATIENCE)
        finally:
            # A killed server would leave its shared memory.
            self.kill()

    def kill(self):
        """Kill all processes of the server with SIGKILL."""
        processes = []
        if self._process.poll() is None:
            first = psutil.Process(self._process.pid)
            # The first one goes first: it would start new processes. Others that remain would keep the data in use.
            processes += [first, *first.children()]
        for each in processes:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self._process.wait(PATIENCE)
        assert until(lambda: not any(map(_runs, processes)))

    def restart(self):
        """Kill the server and start it again."""
        self.kill()
        self.start()

    def terminate_connections(self):
        """End the connections of all clients."""
        with self.connect() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )

    def connect(self, **options):
        """Return a connection of psycopg, closed with the server. It commits each statement by default."""
        server = {"host": self.host, "port": self.port, "user": self.user, "dbname": self.database}
        return self._closed(psycopg.connect(**{"autocommit": True, "connect_timeout": PATIENCE, **server, **options}))

    def _accepts(self):
        try:
            self.connect(connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


def _runs(process):
    """Return whether a killed process holds its memory: one that init has not waited for yet does not."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
