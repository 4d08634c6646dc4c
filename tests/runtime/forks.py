"""Forks of the process that runs the tests."""

import faulthandler
import os
import signal
import sys
import traceback

from tests.waiting import PATIENCE


def fork(work=lambda: None):
    """Fork, and run ``work()`` in the child, which may wait for events. Return whether it succeeded."""
    pid = os.fork()
    if pid == 0:
        sys.settrace(None)
        sys.setprofile(None)
        code = 1
        try:
            # If it hangs, it prints the stacks of its threads.
            faulthandler.register(signal.SIGALRM, file=2, chain=True)
            signal.alarm(2 * PATIENCE)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
            faulthandler.dump_traceback(2)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
