"""gevent patches after wheelcache was imported, or used: no greenlet stops the others. In a process of its own."""

import re

import pytest

from tests.scripts import run_python

PRELUDE = """
import os, re, signal, sys, threading, time
from tests.waiting import until
from tests.caches import ticking
from wheelcache.runtime.worker_pool import timed_load_pool

signal.alarm(240)

def patch():
    from gevent import monkey
    monkey.patch_all()

def others_go_on():
    # A greenlet that only yields does not run if another one blocks them all.
    for _ in range(200):
        time.sleep(0.001)
"""

GEVENTS_OWN = r"(?s)Exception ignored in[^\n]*<bound method _ForkHooks\.after_fork_in_child.*?_set_done\(\).*?\n"
"""The output of gevent in the child of a fork on Python >= 3.13 if a thread was started before it patched."""


def run(script):
    outcome = run_python("-c", PRELUDE + script)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert "Traceback" not in re.sub(GEVENTS_OWN, "", outcome.stderr), outcome.stderr
    return outcome.stdout.split()


USED_BEFORE = """
cache.set("before", 1, ttl=3600)
cache.set("before and short", 1, ttl=0.05)
assert cache.get_or_load("timed before", lambda: 1, timeout=60) == 1
"""


@pytest.mark.parametrize("use", ["", USED_BEFORE], ids=["made", "used"])
def test_threads_of_a_cache_that_was_made_or_used_before_stop_no_greenlet(use):
    """The wheel thread, with a listener that waits; those that load; a child's."""
    assert run(f"""
heard, gone_on = [], []

def listener(key, value, cause):
    if key == "slow":
        heard.append(until(lambda: gone_on))

cache = ticking(0.01)("kept", on_removal=listener)
{use}
patch()
cache.set("kept", "value")
cache.set("slow", 1, ttl=0.02)
others_go_on()
assert not heard
gone_on.append(True)
until(lambda: heard)
until(lambda: "before and short" not in cache.keys())
assert cache.engine.observed.thread_state == "running"

loads, values = [], []

def load():
    loads.append(until(lambda: gone_on))
    return "loaded"

take = lambda: values.append(cache.get_or_load("k", load, timeout=60))
gone_on.clear()
takers = [threading.Thread(target=take) for _ in range(10)]
for taker in takers:
    taker.start()
others_go_on()
assert not loads
gone_on.append(True)
for taker in takers:
    taker.join()
assert (set(values), len(values), len(loads)) == ({{"loaded"}}, 10, 1)
until(lambda: timed_load_pool.pending == 0)
others_go_on()
cache.get_or_load("stale", lambda: "old", ttl=0.02, grace=60)
until(lambda: cache.get("stale") is None)
assert cache.get_or_load("stale", load, ttl=60, grace=60) == "old"
until(lambda: cache.get("stale") == "loaded")

for depth in range(2):
    pid = os.fork()
    if pid == 0:
        cache.set("child's", 1, ttl=0.02)
        until(lambda: "child's" not in cache.keys() and cache.engine.observed.thread_state == "running")
        names = [thread.name for thread in threading.enumerate()]
        os._exit(0 if names.count("wheelcache-wheel") == 1 else 1)
    print(os.waitpid(pid, 0)[1])
cache.set("short", 1, ttl=0.02)
until(lambda: "short" not in cache.keys())
others_go_on()
""") == ["0", "0"]
