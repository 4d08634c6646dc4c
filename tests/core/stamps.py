"""Stamps in the memory of one process."""

from array import array

from wheelcache.core.contract import COMMIT_LANES


class LocalStamps:
    """See ``contract.Stamps``. Several cores of a test share the tables, each with a range of its own."""

    def __init__(self, slots=8, first=1 << 40, shared_with=None):
        if first is None:
            self.commits = None
        elif shared_with is None:
            self.commits = memoryview(bytearray(2 * COMMIT_LANES))
        else:
            self.commits = shared_with.commits
        if shared_with is None:
            self.table = memoryview(array("Q", [1] * slots))
            self.invalidations = memoryview(array("Q", [1] * slots))
            self.tags = None if first is None else memoryview(array("Q", [0] * slots))
        else:
            self.table, self.invalidations, self.tags = shared_with.table, shared_with.invalidations, shared_with.tags
        self.first = first
