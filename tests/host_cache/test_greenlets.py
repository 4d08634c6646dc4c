"""Under gevent, a caller that waits for another process is a greenlet, and blocks no other one."""

from tests.host_cache.test_operators import make
from tests.scripts import start
from tests.waiting import PATIENCE

WAITER = """
from gevent import monkey
monkey.patch_all()
import sys
import gevent
from tests.host_cache.test_operators import make

cache = make(sys.argv[1], figures_dir=None)
waiter = gevent.spawn(cache.get_or_load, "key", lambda: "computed here")
for turn in range(10):
    # Another greenlet runs while the first one waits.
    gevent.sleep(0.01)
    assert cache.get("other") is None
assert not waiter.ready()
print("waiting", flush=True)
print(waiter.get(timeout=60), flush=True)
"""


def test_a_greenlet_waits_for_another_process_and_blocks_no_other_one(tmp_path):
    cache = make(tmp_path, figures_dir=None)

    def load():
        assert process.stdout.readline() == "waiting\n"
        return "computed there"

    def load_while_the_other_process_waits():
        nonlocal process
        process = start(WAITER, tmp_path)
        return load()

    process = None
    try:
        assert cache.get_or_load("key", load_while_the_other_process_waits) == "computed there"
        output, errors = process.communicate(timeout=PATIENCE)
        assert (output, errors) == ("computed there\n", "")
    finally:
        process.kill()
        process.communicate()
        cache.close()
