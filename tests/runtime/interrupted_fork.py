"""Forks of a process, each with an asynchronous exception at another point of the hooks: see ``test_lifecycle``."""

import socket
import sys
import threading
from functools import partial
from itertools import count
from pathlib import Path

import wheelcache
from tests.caches import ticking
from tests.guests import Timers
from tests.runtime.forks import fork, use
from tests.runtime.interruptions import Delivery, Worker, quiet
from tests.waiting import PATIENCE, current_frames, until
from wheelcache import Cache
from wheelcache.engine.guests import module_of
from wheelcache.runtime import lifecycle

redis_tracking = module_of("near_cache", "redis_tracking")

PACKAGE = Path(wheelcache.__file__).parent


class Silence:
    """A connection to Redis that receives nothing."""

    def __init__(self):
        self._sock, self._other = socket.socketpair()

    def connect(self):
        """Do nothing: it is connected."""

    def send_command(self, *arguments):
        """Do nothing."""

    def can_read(self, timeout):
        return False

    def read_response(self):
        return b"OK"

    def disconnect(self):
        self._sock.close()
        self._other.close()


class Listener:
    def trust(self, trusted):
        """Do nothing: there are no copies."""


def runs_ours(thread):
    """Return whether ``thread`` runs code of the package.

    ``is_alive`` does not tell: a ``join`` that is interrupted marks the thread as stopped, and a ``start`` that is
    interrupted may leave the thread waiting, before it runs anything, for a lock of ``threading``'s own.
    """
    frame = current_frames().get(thread.ident)
    while frame is not None and not frame.f_code.co_filename.startswith(str(PACKAGE)):
        frame = frame.f_back
    return frame is not None


def main():
    worker = Worker()
    # Python cannot raise the exceptions of fork hooks. It calls this function instead.
    sys.unraisablehook = lambda unraisable: None
    left = threading.Event()
    expiring = ticking(0.01)(on_removal=lambda *removal: left.set())
    caches = [Cache(ttl=30) for _ in range(3)]
    uses = [partial(use, cache) for cache in caches]
    ends = [cache.close for cache in (expiring, *caches)]
    waiting = []
    if Timers is not None:
        timers = Timers(0.01, lambda key, value: None)
        uses.append(lambda: timers.set_timer("a", 1, 30))
        ends.append(timers.stop)
    if redis_tracking is not None:
        tracking = redis_tracking.Tracking(lambda timeout: Silence(), b"", Listener(), timeout=1000)
        tracking.start()
        waiting.append("wheelcache-tracking")
        ends.append(tracking.stop)

    def alive():
        return sorted(each.name for each in threading.enumerate() if each.name in waiting and runs_ours(each))

    def use_all():
        for each in uses:
            each()

    with quiet():
        for target in count(1):
            use_all()
            expiring.set("soon", 1, ttl=0.02)
            delivery = Delivery(target)
            works = []
            delivery.run(lambda works=works: works.append(fork(use_all)))
            assert works == [True], f"{delivery.where}: the child does not work"
            assert worker.does(lambda: (use_all(), fork())), f"{delivery.where}: a lock is taken for ever"
            assert left.wait(PATIENCE), f"{delivery.where}: the wheel thread does not start again"
            assert until(lambda: alive() == waiting, note=lambda at=delivery.where: f"{at}: {alive()} run")
            assert not lifecycle.is_forking()
            left.clear()
            if delivery.where is None:
                break
    assert target > 20
    for end in ends:
        end()
