"""What code of this process allocates and opens, without the threads that other tests have left."""

import os
import tracemalloc
from contextlib import suppress


def traced(*files):
    """Return the bytes that were allocated in ``files``, which may have wildcards. The compiled core allocates in the
    line that calls it."""
    own = [tracemalloc.Filter(True, pattern) for pattern in files]
    return sum(each.size for each in tracemalloc.take_snapshot().filter_traces(own).traces)


def descriptors(text):
    """Return the open descriptors of this process whose paths contain ``text``, and their paths.

    Another thread may close one of its own at any time: reading its path then fails, and it is left out.
    """
    opened = {}
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            opened[int(number)] = os.readlink(f"/proc/self/fd/{number}")
    return {number: path for number, path in opened.items() if text in path}
