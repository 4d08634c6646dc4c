"""Forks of a process, each with an asynchronous exception at another point of the hooks: see ``test_lifecycle``."""

import sys
import threading
from itertools import count

from tests.caches import ticking
from tests.runtime.forks import fork, use
from tests.runtime.interruptions import Delivery, Worker, quiet
from tests.waiting import PATIENCE
from wheelcache import Cache
from wheelcache.runtime import lifecycle


def main():
    worker = Worker()
    # Python cannot raise the exceptions of fork hooks. It calls this function instead.
    sys.unraisablehook = lambda unraisable: None
    left = threading.Event()
    expiring = ticking(0.01)(on_removal=lambda *removal: left.set())
    caches = [Cache(ttl=30) for _ in range(3)]

    def use_all():
        for each in caches:
            use(each)

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
            assert not lifecycle.is_forking()
            left.clear()
            if delivery.where is None:
                break
    assert target > 20
    for each in (expiring, *caches):
        each.close()
