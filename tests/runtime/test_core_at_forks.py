"""A core that is held over a fork, whatever interrupts that."""

from itertools import count
from time import monotonic

import pytest

from tests.engine.interruptions import Delivery, Worker
from wheelcache.core.python_core import PythonCore

worker = Worker()


@pytest.mark.parametrize("in_child", [False, True])
def test_an_exception_at_any_point_leaves_the_core_to_other_threads(in_child):
    for target in count(1):
        core = PythonCore(clock=monotonic)
        core.set("a", 1, None)

        def fork(core=core):
            core.before_fork()
            core.after_fork(in_child=in_child)

        delivery = Delivery(target)
        interrupted = delivery.run(fork)
        # A hook of a fork that is interrupted is called again.
        core.before_fork()
        core.after_fork(in_child=in_child)
        assert worker.does(lambda core=core: core.set("a", 2, None)), f"{delivery.where}: a lock is taken for ever"
        assert core.get("a") == 2
        if not interrupted:
            break
    assert target > 2


def test_a_fork_amid_a_step_leaves_the_lock_to_that_step():
    """A finalizer that a step runs may fork."""
    forks = []

    class Forks:
        def __del__(self):
            core.before_fork()
            core.before_fork()
            core.after_fork(in_child=False)
            core.after_fork(in_child=False)
            forks.append(core.get("b"))

    core = PythonCore(clock=monotonic)
    core.set("b", 1, None)
    core.set("a", Forks(), None)
    core.set("a", 2, None)
    assert forks == [1]
    assert worker.does(lambda: core.set("a", 3, None))
