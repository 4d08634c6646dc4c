"""Machines with processes of a Django site, for tests of ``COHERENCE = "database"``.

A machine is a runtime directory of its own: its processes share stamps with each other, and with no other machine.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from itertools import cycle
from pathlib import Path
from select import select

from tests.scripts import ROOT
from tests.waiting import PATIENCE, until


class Prepared:
    """A process that has imported Django, and forks: the imports take half a second of a processor."""

    def __enter__(self):
        self._orders, theirs = socket.socketpair()
        self._orders.settimeout(PATIENCE)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.machine_process", str(theirs.fileno())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        return self

    def __exit__(self, *_):
        self._orders.close()
        self._process.kill()
        self._process.wait(PATIENCE)

    def start(self, given, *pipes):
        """Start a process with ``pipes`` as its standard input and output. Return its number."""
        return self._order(given, *pipes)

    def wait(self, pid):
        """Return when this process has ended."""
        self._order({"wait": pid})

    def _order(self, order, *pipes):
        try:
            socket.send_fds(self._orders, [json.dumps(order).encode()], pipes)
            return int(self._orders.recv(100))
        except BaseException:
            # The next order would receive a late answer to this one.
            self._process.kill()
            raise


class PreparedPair(ExitStack):
    """Two prepared processes, which take turns: a process and the next one have different hashes, as in most sites."""

    def __enter__(self):
        self._each = cycle([self.enter_context(Prepared()) for _ in range(2)])
        return super().__enter__()

    def __next__(self):
        return next(self._each)


class Process:
    """A process of the site on a machine: ``process("cache.get('key')")`` runs there, and returns its result."""

    def __init__(self, prepared, machine, databases, **options):
        given = {"machine": str(machine), "databases": databases, "options": options}
        (its_input, to_it), (from_it, its_output) = os.pipe(), os.pipe()
        self._input, self._output = os.fdopen(to_it, "w"), os.fdopen(from_it)
        self._prepared = prepared
        try:
            self.pid = prepared.start(given, its_input, its_output)
        finally:
            os.close(its_input)
            os.close(its_output)

    def __call__(self, code):
        self.begin(code)
        return self.end()

    def begin(self, code):
        """Run code without waiting for its result, which ``end`` returns."""
        self._input.write(json.dumps(code) + "\n")
        self._input.flush()

    def end(self):
        assert select([self._output], [], [], 6 * PATIENCE)[0], "the process does not answer"
        line = self._output.readline()
        assert line, "the process has ended"
        result, error = json.loads(line)
        if error:
            raise AssertionError(f"in the process of a machine: {error}")
        return result

    def keeps(self, key="k", value="value"):
        """Return whether a value that is stored now is returned afterwards: whether the notices are being read."""
        return self(f"[cache.get({key!r}), cache.get_or_set({key!r}, {value!r}), cache.get({key!r})][2]") == value

    def has_lost(self, key="k"):
        return self(f"cache.get({key!r})") is None

    def loads(self, key="k", value="value"):
        """Store a value as a reader does, as soon as the notices are being read."""
        assert until(lambda: self.keeps(key, value))

    def pause(self):
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self):
        os.kill(self.pid, signal.SIGCONT)

    def kill(self):
        """Kill the process with SIGKILL, unless this was done before."""
        if self._input.closed:
            return
        os.kill(self.pid, signal.SIGKILL)
        # It may hold code that the process has never read.
        with suppress(OSError):
            self._input.close()
        self._output.close()
        self._prepared.wait(self.pid)

    @property
    def reads_notices(self):
        """Whether this process is the reader of its machine: the file of the reader is locked by it."""
        return self("is_reader()")


class Machines:
    """Starts processes, and ends them.

    Args:
        prepared: a ``PreparedPair``.
        options: for all processes: ``trust`` in seconds, ``tiered``, or options of the cache. By default, the values
            are trusted for as long as a busy machine may not run the reader, so only a notice outdates them.
    """

    def __init__(self, prepared, directory, databases, **options):
        self._prepared = prepared
        self._directory = Path(directory)
        self.databases = databases
        self._options = {"trust": 60, **options}
        self._processes = []

    def process(self, machine="a", **options):
        path = self._directory / machine
        path.mkdir(mode=0o700, exist_ok=True)
        databases = options.pop("databases", self.databases)
        process = Process(next(self._prepared), path, databases, **{**self._options, **options})
        self._processes.append(process)
        return process

    def end(self):
        with ExitStack() as stack:
            for process in self._processes:
                stack.callback(process.kill)


@contextmanager
def migrated(prepared, directory, server, **options):
    """Make the tables on a server, with a process of machine "a". All processes end after the block."""
    machines = Machines(prepared, directory, {"default": server.django_database}, **options)
    try:
        machines.process()("call_command('migrate', verbosity=0)")
        yield machines
    finally:
        machines.end()


def execute(server, *statements):
    with server.connect() as connection:
        for statement in statements:
            connection.execute(statement)


ROWS = "SELECT payload FROM wheelcache_notices WHERE cache = 'site' ORDER BY xid, id"


def payloads(server):
    """Return the notices of the site in the table."""
    with server.connect() as connection:
        return [json.loads(payload) for (payload,) in connection.execute(ROWS)]
