"""A PostgreSQL server of a test's own, on a free port, that can be killed, stopped and started again.

It syncs nothing to the disk, since only a loss of power would lose data that was not synced. Every acknowledged commit
was written, however, so a killed server has it after the next start, unless ``synchronous_commit`` is off.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg

from tests.ports import start_on_free_port
from tests.waiting import PATIENCE, happens, until

DEBIAN = Path("/usr/lib/postgresql")
"""Debian keeps the programs of each version in a folder that is not in the PATH."""


def programs():
    """Return the folder of initdb and postgres, of the newest version, or None if they are not installed."""
    if found := shutil.which("postgres"):
        return Path(found).resolve().parent
    versions = sorted(DEBIAN.glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    return versions[-1].parent if versions else None


class PostgresqlServer:
    """``with PostgresqlServer(max_connections=20) as server: server.connect().execute("SELECT 1")``

    Args:
        settings: parameters of postgresql.conf.

    Raises:
        RuntimeError: if PostgreSQL is not installed or does not start; the message contains its output.
    """

    host = "127.0.0.1"
    user = database = "postgres"

    def __init__(self, **settings):
        self._programs = programs()
        if self._programs is None:
            raise RuntimeError("these tests need PostgreSQL in the PATH or in /usr/lib/postgresql: make packages")
        self._settings = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "32MB", **settings}
        self._directory = tempfile.TemporaryDirectory(prefix="wheelcache-postgresql-")
        self._given = {"cwd": self._directory.name, "stderr": subprocess.STDOUT}
        if os.geteuid() == 0:
            # initdb and postgres refuse to run as root.
            shutil.chown(self._directory.name, "postgres", "postgres")
            self._given |= {"user": "postgres", "group": "postgres", "extra_groups": []}
        self.port = None
        self._process = None
        self._connections = []

    def __enter__(self):
        try:
            options = ["--auth", "trust", "--username", self.user, "--encoding", "UTF8", "--locale", "C", "--no-sync"]
            command = [self._programs / "initdb", "--pgdata", "data", *options]
            made = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, **self._given)
            if made.returncode:
                raise RuntimeError(f"initdb failed:\n{made.stdout}")
            start_on_free_port(self)
        except BaseException:
            # Also Ctrl-C: no server stays.
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for connection in self._connections:
            connection.close()
        if self._process is not None and self._process.poll() is None:
            # A killed server would leave its shared memory.
            try:
                self.stop()
            finally:
                self.kill()
        self._directory.cleanup()

    @property
    def django_database(self):
        """The server as an entry of Django's DATABASES."""
        place = {"HOST": self.host, "PORT": self.port, "USER": self.user, "NAME": self.database}
        return {"ENGINE": "django.db.backends.postgresql", **place}

    def start(self):
        """Start, or start again on the same port. Return when the server accepts connections."""
        log = Path(self._directory.name, "log")
        fixed = {"listen_addresses": self.host, "port": self.port, "unix_socket_directories": self._directory.name}
        options = [f"--{name}={value}" for name, value in {**fixed, **self._settings}.items()]
        with log.open("wb") as output:
            command = [self._programs / "postgres", "-D", "data", *options]
            self._process = subprocess.Popen(command, stdout=output, **self._given)
        if not happens(lambda: self._process.poll() is not None or self._accepts()) or self._process.poll() is not None:
            self.kill()
            raise RuntimeError(f"postgres does not start on port {self.port}:\n{log.read_text()}")

    def stop(self):
        """Shut the server down as its operator does: roll open transactions back and close every connection."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(PATIENCE)

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
        connection = psycopg.connect(**{"autocommit": True, "connect_timeout": PATIENCE, **server, **options})
        self._connections.append(connection)
        return connection

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
