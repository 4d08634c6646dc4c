"""What code of this process allocates and opens, without the threads that other tests have left."""

import os
import tracemalloc


def traced(*files):
    """Return the bytes that were allocated in ``files``, which may have wildcards. The compiled core allocates in the
    line that calls it."""
    own = [tracemalloc.Filter(True, pattern) for pattern in files]
    return sum(each.size for each in tracemalloc.take_snapshot().filter_traces(own).traces)


def descriptors(folder):
    """Return the open descriptors of this process, and their paths, of files in ``folder``."""
    opened = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            opened[int(number)] = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            # That of the listing itself, or of another thread.
            continue
    return {number: path for number, path in opened.items() if path.startswith(f"{folder}/")}
