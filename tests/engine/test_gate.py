"""The gate of a cache opens at the first use, and shuts forever when the cache is closed."""

import pytest

from wheelcache.core import CoreClass
from wheelcache.engine.gate import Gate
from wheelcache.errors import CacheClosed, Unused


class Waiting:
    """A core whose first use calls ``begin(self)``."""

    def __init__(self, begin=lambda cache: None, core=None):
        self.begun = 0
        self.core = core or CoreClass()
        self.gate = Gate("waiting", self.core)
        self.gate.begin_with(self._begin)
        self._run = begin

    def _begin(self):
        self.begun += 1
        self._run(self)

    def get(self, key):
        try:
            return self.core.find(key)
        except Unused:
            self.gate.open()
            return self.core.find(key)

    def check_is_closed(self):
        with pytest.raises(CacheClosed, match="the cache 'waiting' was closed"):
            self.gate.open()
        with pytest.raises(CacheClosed):
            self.core.find("a")
        assert not self.gate.is_in_use()


def test_the_first_use_begins_and_no_other():
    cache = Waiting(lambda cache: cache.core.set("a", 1, None))
    with pytest.raises(Unused):
        cache.core.find("a")
    assert (cache.gate.is_in_use(), cache.begun) == (False, 0)
    for _ in range(2):
        assert cache.get("a") == 1, "set at the first use"
    cache.gate.open()
    assert (cache.gate.is_in_use(), cache.begun) == (True, 1)
    # The refused calls do not count.
    assert cache.core.counts().hits == 2


def test_an_error_of_what_begins_reaches_the_first_use_only():
    cache = Waiting(lambda cache: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cache.get("a")
    assert cache.get("a") is None
    assert cache.begun == 1


def test_a_cache_that_is_closed_before_its_first_use_stays_shut():
    cache = Waiting()
    cache.gate.close()
    cache.gate.open_early()
    cache.check_is_closed()
    cache.gate.after_fork_in_child()
    cache.check_is_closed()
    assert cache.begun == 0


def test_a_cache_that_its_first_use_closes_stays_shut():
    cache = Waiting(lambda cache: cache.gate.close())
    with pytest.raises(CacheClosed):
        cache.get("a")
    cache.check_is_closed()


def test_a_cache_that_a_finalizer_closes_while_its_gate_opens_stays_shut():
    class Core:
        def gate(self, error):
            if error is None:
                cache.gate.close()
            self.error = error

        def find(self, key):
            raise self.error()

    cache = Waiting(core=Core())
    with pytest.raises(CacheClosed):
        cache.get("a")
    cache.check_is_closed()
