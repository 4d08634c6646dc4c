"""Calls that an exception interrupts at any point, for example that of a time limit: the other processes go on."""

from itertools import count

import pytest

from tests.host_cache.workers import database
from tests.runtime.interruptions import Delivery, compiled_core

CALLS = {
    "get": lambda cache: cache.get("k"),
    "set": lambda cache: cache.set("k", 2),
    "delete": lambda cache: cache.delete("k"),
    "incr": lambda cache: cache.incr("n"),
    "load": lambda cache: cache.get_or_load("absent", lambda: 1),
    "keys": lambda cache: cache.keys(),
}


@compiled_core
@pytest.mark.parametrize("name", CALLS)
def test_an_interrupted_call_leaves_no_statement_and_no_transaction_open(view, folder, name):
    cache, other = view(), view()
    cache.set("kept", 1)
    path = database(folder)
    for target in count(1):
        cache.set("k", 1)
        cache.set("n", 1)
        cache.delete("absent")
        delivery = Delivery(target)
        was_interrupted = delivery.run(lambda: CALLS[name](cache))
        other.set("k", target)
        assert (cache.get("k"), other.get("kept")) == (target, 1), delivery.where
        assert (cache.delete("k"), other.get("k")) == (True, None), delivery.where
        # Beside an open transaction, the others would go on with a new file after some seconds.
        assert database(folder) == path, delivery.where
        if not was_interrupted:
            break
