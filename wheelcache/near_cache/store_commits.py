"""The marks of commits in progress in a store that machines share: while a transaction is being committed, no computed
value of its keys stays in the store.

A transaction invalidates its keys before COMMIT and again after it, because another process may fill a key in between
with the value from before the commit. If the process is killed in between, nothing repeats the second invalidation. So
there is a mark in the store, a key of its own, for each key and tag that the transaction invalidates. The transaction
sets the marks before its first invalidation, and deletes them after the second one. A caller stores a computed value
first and then looks for marks. If there is one, the caller removes the value again. If the process of the transaction
is killed, the marks end after ``MARKED``.

Two transactions that invalidate the same key at the same moment share its mark, which ends with the first of them.
Usually the database lets one of them wait for the other, since they change the same row.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final

MARKED: Final = 10
"""Seconds for which a commit, and the computations that began before it, are covered."""


def marks_of(names: Iterable[Any]) -> dict[str, int]:
    """Return the callers' keys of the marks of ``names``, which are keys and tags, with the values to set."""
    return {f"wheelcache.commit.{blake2b(repr(name).encode(), digest_size=16).hexdigest()}": 1 for name in names}
