"""Recursive calls at Python's default limit of recursion."""

import sys
import threading

DEFAULT_LIMIT = 1000
DEPTH = 240
"""The depth that a recursive function with cached values must reach: a fourth of the limit."""


def result_at_depth(function, depth=DEPTH):
    """Return the result of ``function(depth)``, called in a thread of its own at the default limit."""
    results = []
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(DEFAULT_LIMIT)
    try:
        thread = threading.Thread(target=lambda: results.append(function(depth)))
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(limit)
    (result,) = results
    return result
