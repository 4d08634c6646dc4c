"""Time during which the machine is suspended.

Linux moves CLOCK_BOOTTIME by this time, and no other clock but the wall clock. Here, a process does this to itself: it
enters a time namespace, for which it needs root or user namespaces, and must have a single thread. So it is the child
of a fork.
"""

import os

import pytest

from tests.scripts import run

SUSPENDED = """
    import ctypes, os, time
    from tests.waiting import PATIENCE, until
    from wheelcache import Cache
    from wheelcache.core import CoreClass
    from wheelcache.runtime.clock import moment

    CLONE_NEWTIME, CLONE_NEWUSER = 0x80, 0x10000000
    libc = ctypes.CDLL(None, use_errno=True)

    def suspend(seconds):
        assert libc.unshare(CLONE_NEWTIME | (CLONE_NEWUSER if os.geteuid() else 0)) == 0, ctypes.get_errno()
        with open("/proc/self/timens_offsets", "w") as offsets:
            offsets.write(f"boottime {seconds} 0")
        namespace = os.open("/proc/self/ns/time_for_children", os.O_RDONLY)
        assert libc.setns(namespace, CLONE_NEWTIME) == 0, ctypes.get_errno()

    cache, core = Cache(jitter=0), CoreClass()
    cache.set("of an hour", 1, 3600)
    cache.set("of a day", 1, 86_400)
    if os.fork() == 0:
        assert (cache.get("of an hour"), cache.get("of a day")) == (1, 1)
        suspend(3600)
        # At the latest when the coarse clock, which no suspension moves, shows another time.
        assert until(lambda: cache.get("of an hour") is None)
        assert cache.get("of a day") == 1
        assert 82_800 - PATIENCE < cache.expires_in("of a day") <= 82_800
        # Python code and the core compare their moments.
        since = moment()
        core.drop_tag("tag")
        assert core.dropped_since(("tag",), since)
        assert not core.dropped_since(("tag",), moment() + 1)
        os._exit(0)
    assert os.wait()[1] == 0
"""


@pytest.mark.servers
@pytest.mark.parametrize("core", ["python", pytest.param("compiled", marks=pytest.mark.compiled)])
def test_timeouts_count_the_time_during_which_the_machine_is_suspended(core):
    run(SUSPENDED, env={**os.environ, "WHEELCACHE_CORE": core})
