"""Servers that tests start, each a process with a port of its own and perhaps with workers."""

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from tests.ports import free_ports
from tests.waiting import PATIENCE, until

ROOT = Path(__file__).parents[2]


class Server:
    """One port of a server that runs, whose views answer in JSON.

    Attributes:
        process: of the server. The group of its session is this server and its workers.
    """

    def __init__(self, process, port):
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def connect(self):
        connection = HTTPConnection("127.0.0.1", self.port, timeout=90)
        connection.connect()
        return connection

    def ask(self, path, method="GET", connection=None):
        """Return the status and the answer (None unless the status is 200). Open a connection unless one is given."""
        connection = connection or self.connect()
        try:
            connection.request(method, f"/{path}")
            response = connection.getresponse()
            body = response.read()
            return response.status, json.loads(body) if response.status == 200 else None
        finally:
            connection.close()

    def __call__(self, path, method="GET"):
        status, answer = self.ask(path, method)
        assert status == 200, (path, status)
        return answer

    def together(self, *paths):
        """Request all paths in parallel, on connections that are open already. Return statuses and answers in order."""
        barrier = threading.Barrier(len(paths))

        def one(path):
            connection = self.connect()
            barrier.wait(PATIENCE * 2)
            return self.ask(path, connection=connection)

        with ThreadPoolExecutor(len(paths)) as pool:
            return list(pool.map(one, paths, timeout=PATIENCE))

    def is_up(self, path="pid"):
        try:
            return self.ask(path)[0] == 200
        except (OSError, HTTPException):
            return False

    def stop(self):
        """Send the server SIGTERM, and wait until it is gone."""
        self.process.terminate()
        self.process.wait(PATIENCE)

    def kill(self):
        """Kill the server and all its workers with SIGKILL."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)


def two_workers_of(module):
    """Return the arguments of Python that serve ``application`` of a module with two workers, which keep a connection
    open."""
    return [
        *("-m", "gunicorn", "--workers", "2", "--worker-class", "gthread", "--threads", "4", "--keep-alive", "75"),
        *("--bind", "127.0.0.1:{port}", "--log-level", "warning", f"{module}:application"),
    ]


def one_of_each_worker(connect, stack, log):
    """Connect until there is a connection to each of two workers, and return both. The ``stack`` closes them.

    Args:
        connect: returns an object with the open ``connection`` and the ``pid`` of its worker.
        log: the file with the output of the server, which a failure shows.
    """
    found = {}

    def both():
        each = connect()
        if each.pid in found:
            each.connection.close()
        else:
            found[each.pid] = stack.enter_context(closing(each.connection)) and each
        return len(found) == 2

    assert until(both, note=log.read_text)
    return list(found.values())


@contextmanager
def running(
    command, log, *, make=Server, is_up=Server.is_up, python=sys.executable, cwd=ROOT, patience=PATIENCE, **environment
):
    """Start a server, and yield it when it answers. ``command``: Python's arguments, with {port} and {other_port}.

    Yields:
        the result of ``make`` for the process and the port; a list of two, if there are two ports.
    """
    ports = free_ports(1 + any("{other_port}" in part for part in command))
    with log.open("a") as output:
        process = subprocess.Popen(
            [python, *(part.format(port=ports[0], other_port=ports[-1]) for part in command)],
            cwd=cwd,
            env={**os.environ, **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    servers = [make(process, port) for port in ports]
    try:

        def all_are_up():
            assert process.poll() is None, log.read_text()
            return all(map(is_up, servers))

        assert until(all_are_up, patience, note=log.read_text)
        yield servers if len(servers) > 1 else servers[0]
    finally:
        if process.poll() is None:
            servers[0].kill()


class Fleet:
    """Servers that stay up for all tests of a module: the first test that asks for one starts it."""

    def __init__(self, stack, folder):
        self._stack = stack
        self._folder = folder
        self._running = {}

    def __call__(self, key, command, **how):
        if key not in self._running:
            log = self._folder / f"log {len(self._running)}"
            self._running[key] = self._stack.enter_context(running(command, log, **how))
        return self._running[key]

    def logs(self):
        return "".join(log.read_text() for log in self._folder.glob("log *"))
