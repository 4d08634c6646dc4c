"""Worker processes of a site with a host cache, which run the code that a test sends to them.

They are forks of a process that has imported the package and made no cache: the imports take half a second.
"""

import logging
import os
import signal
import sys
import textwrap
import threading
import time
from multiprocessing import get_context
from pathlib import Path

from tests.waiting import until, until_waiting
from wheelcache.host_cache.hosted_cache import HostedCache
from wheelcache.host_cache.place import Place

PATIENCE = 60
"""Seconds that a test waits for a worker."""

MAX_BYTES = 16 << 20

FORKING = get_context("forkserver")
FORKING.set_forkserver_preload([__name__])


def make_cache(folder, *, max_bytes=MAX_BYTES, **options):
    """Return a cache in a folder: each object is the view of another process."""
    quiet = {"jitter": 0}
    return HostedCache(lambda: Place(Path(folder)), max_bytes, **{**quiet, **options})


def database(folder):
    """Return the path of the database in use."""
    (path,) = folder.glob("*.sqlite3")
    return path


def damage(folder):
    """Overwrite the database and its log, but keep their sizes, so that maps of the files stay valid."""
    path = database(folder)
    for name in (path, path.with_name(f"{path.name}-wal")):
        with name.open("r+b") as file:
            file.write(b"\xa5" * name.stat().st_size)


class Worker:
    """A worker: ``worker("cache.get('key')")`` runs there, and returns its result.

    The code finds ``cache``, and ``events``, the logged messages. ``begin`` calls a function in a thread, and
    ``result`` returns its result. ``send`` and ``answer`` are the two halves of a call.
    """

    def __init__(self, folder, options):
        self._connection, theirs = FORKING.Pipe()
        self._process = FORKING.Process(target=serve, args=(theirs, folder, options), daemon=True)
        self._process.start()
        theirs.close()

    def __call__(self, code):
        self.send(code)
        return self.answer()

    def send(self, code):
        self._connection.send(textwrap.dedent(code))

    def answer(self, seconds=PATIENCE):
        assert self._connection.poll(seconds), f"the worker has not answered within {seconds} s"
        result, error = self._connection.recv()
        assert error is None, error
        return result

    def begins(self, code, name="it"):
        """Run code in a thread, which lives on, until it waits for another caller."""
        self(f"begin(lambda: {code}, {name!r})")
        self("until_waiting(1)")

    def stop(self):
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self):
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self):
        """Return when the worker has ended. Its children may hold its end of the connection, and live on."""
        self._process.kill()
        self._process.join(PATIENCE)
        assert not self._process.is_alive(), "the worker has not ended"


def serve(connection, folder, options):
    """Run the code of each message, and answer with its result."""
    events = []
    handler = logging.Handler()
    handler.emit = lambda record: events.append(record.getMessage())
    logging.getLogger("wheelcache").addHandler(handler)
    results, forever = {}, threading.Event()

    def begin(work, name="it"):
        # The thread lives on, with its leases.
        threading.Thread(target=lambda: (results.update({name: work()}), forever.wait()), daemon=True).start()

    def result(name="it"):
        assert until(lambda: name in results)
        return results.pop(name)

    names = {"cache": make_cache(folder, **options), "events": events, "os": os, "signal": signal, "begin": begin}
    names |= {"sys": sys, "threading": threading, "time": time, "until_waiting": until_waiting, "result": result}
    while (code := connection.recv()) is not None:
        try:
            try:
                result = eval(code, names)
            except SyntaxError:
                result = exec(code, names)
            answer = result, None
        except Exception as error:
            answer = None, f"{error!r} in {code}"
        connection.send(answer)
