"""Transactions that a site announces, for frameworks that own no connections to databases.

``transaction_scope`` is called by the events of a library of databases, such as those of SQLAlchemy's sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from threading import local
from typing import Any, Final
from weakref import WeakKeyDictionary, ref

from wheelcache.cache import Cache
from wheelcache.engine.layer import Above
from wheelcache.runtime.clock import moment
from wheelcache.transactions.followed_cache import FollowedCache
from wheelcache.transactions.following import Following
from wheelcache.transactions.transaction import Transaction


class TransactionScope:
    """The open transactions of each thread, as the site announces them.

    Every method receives a ``token``: any object, to which weak references are possible, that stands for the
    transaction or the savepoint. Calls for a token that has not begun, or has ended, have no effect.
    """

    def __init__(self) -> None:
        self._running = local()
        self._begun: WeakKeyDictionary[Any, Announced] = WeakKeyDictionary()

    def open_transactions(self) -> list[Transaction]:
        """Return the open transactions of the running thread, oldest first."""
        return _open(self._of_thread())

    def begin(self, token: Any, parent: Any = None) -> None:
        """Announce a transaction, before it reads anything.

        Args:
            parent: for a savepoint, the token of the transaction, or of the savepoint, in which it is.
        """
        outer = None if parent is None else self._begun.get(parent)
        if outer is not None:
            outer.transaction.savepoint(id(token))
            self._begun[token] = Announced(outer.transaction, outer.of_thread, is_savepoint=True)
        else:
            # Of a transaction whose beginning was not announced, nothing is shared.
            transaction, of_thread = Transaction(moment() if parent is None else 0), self._of_thread()
            # Removed also if the token is garbage: its end will never be announced.
            of_thread.append(ref(transaction, of_thread.remove))
            self._begun[token] = Announced(transaction, of_thread, is_savepoint=False)

    def will_commit(self, token: Any) -> None:
        """Announce that a transaction will be committed. If the process is then killed, or the outcome of the commit is
        lost, the deletes of the transaction have been applied."""
        begun = self._begun.get(token)
        if begun is not None and not begun.is_savepoint:
            begun.will_commit = True
            begun.transaction.will_commit()

    def commit(self, token: Any) -> None:
        """Announce that a transaction was committed, or a savepoint released: deletes reach all, and values are shared
        at the commit."""
        begun = self._begun.pop(token, None)
        if begun is None:
            return
        if begun.is_savepoint:
            begun.transaction.release(id(token))
            return
        begun.transaction.committed(begun.end())

    def rollback(self, token: Any) -> None:
        """Announce that a transaction was rolled back, also to a savepoint: its values and deletes are dropped."""
        begun = self._begun.pop(token, None)
        if begun is None:
            return
        transaction = begun.transaction
        if begun.is_savepoint:
            transaction.roll_back_to(id(token), [each for each in _open(begun.of_thread) if each is not transaction])
            transaction.release(id(token))
        elif begun.will_commit:
            transaction.may_have_ended(begun.end())
        else:
            transaction.rolled_back(begun.end())

    def _of_thread(self) -> list[ref[Transaction]]:
        try:
            return self._running.transactions  # type: ignore[no-any-return]
        except AttributeError:
            transactions: list[ref[Transaction]] = []
            self._running.transactions = transactions
            return transactions


class Announced:
    """A transaction that has begun, or a savepoint in it.

    Attributes:
        of_thread: the open transactions of the thread that began it.
        will_commit: whether its commit was announced, so that it may be committed even if an error followed.
    """

    __slots__ = ("is_savepoint", "of_thread", "transaction", "will_commit")

    def __init__(self, transaction: Transaction, of_thread: list[ref[Transaction]], *, is_savepoint: bool) -> None:
        self.transaction = transaction
        self.of_thread = of_thread
        self.is_savepoint = is_savepoint
        self.will_commit = False

    def end(self) -> list[Transaction]:
        """Return the transactions of the thread that remain open."""
        self.of_thread.remove(ref(self.transaction))
        return _open(self.of_thread)


def _open(of_thread: list[ref[Transaction]]) -> list[Transaction]:
    return [transaction for each in of_thread if (transaction := each()) is not None]


transaction_scope: Final = TransactionScope()
"""The transactions that all caches with the option ``transactions`` follow."""


def above(cache: Cache, checked: Mapping[str, Any], *, has_store: bool) -> Above:
    """Return a function that makes the layer of the announced transactions over another one.

    Args:
        cache: the entries, or the copies of those of a store.
        checked: the options of the cache.
    """
    followed = FollowedCache(cache, transaction_scope.open_transactions, checked, has_store=has_store)
    return partial(Following, followed=followed)
