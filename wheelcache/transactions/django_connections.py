"""The open transactions of Django's connections.

Some methods of each connection to a database that a cache follows are wrapped, in the object, when it connects.
``on_commit`` would not do: a function that raises an exception drops the functions after it, a manual savepoint or
transaction has none, nothing is called at a rollback, and tests count the functions that their code has registered.
Wrapped methods also show the beginning of a transaction, before which every value that it reads was committed.
"""

from __future__ import annotations

from asyncio import _get_running_loop
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final
from weakref import ref

from django.conf import settings
from django.contrib.sessions.backends.cache import KEY_PREFIX as SESSIONS
from django.db import connections
from django.db.backends.signals import connection_created

from wheelcache.cache import Cache
from wheelcache.engine import options
from wheelcache.engine.layer import Above
from wheelcache.runtime.clock import moment
from wheelcache.transactions.followed_cache import FollowedCache
from wheelcache.transactions.following import Following
from wheelcache.transactions.transaction import Transaction

TRANSACTION: Final = "_wheelcache_transaction"
"""The attribute of a wrapped connection with its open Transaction, or None."""

FINISH: Final = "_wheelcache_finish"
"""The attribute of a wrapped connection with a function that ends the last transaction for the caches, or None."""

IMMEDIATE: Final = (SESSIONS, "throttle_", "allauth", "axes-")
"""The beginnings of the keys of sessions that are only in a cache, and of the counters of Django REST framework,
django-allauth and django-axes, which follow no transaction. They use ``get`` and ``set``, and a rollback would reset
the count of failed logins."""

followed: Final[set[str]] = set()
"""The aliases of the databases that caches follow."""


_storage: Final[Any] = connections._connections._storage  # type: ignore[attr-defined]
"""The connections of the running thread, as attributes. ``connections[alias]`` takes 2 us."""


class Block(Transaction):
    """The transaction of an outermost ``atomic``, which turns autocommit on after its end.

    The end is finished only then, before the functions of ``on_commit`` run. Until autocommit is on, SQL of a cache on
    the same connection would begin another transaction, in which Django cannot turn it on. In a transaction by hand,
    the end is finished and committed immediately.
    """

    __slots__ = ()


def open_transactions(aliases: Iterable[str]) -> list[Transaction]:
    """Return the open transactions of the running thread or task, oldest first."""
    # A dict: a missing attribute takes 1.3 us, and most threads do not use all databases.
    own = vars(_storage)
    if _get_running_loop() is not None:
        of_task = own.get("cvar")
        own = {alias: getattr(of_task, alias, None) for alias in aliases}
    found: list[Transaction] = []
    for alias in aliases:
        connection = own.get(alias)
        # The usual case first: this runs for every write.
        if connection is not None and not (connection.autocommit and TRANSACTION in connection.__dict__):
            transaction = _transaction_of(connection)
            if transaction is not None:
                found.append(transaction)
    if len(found) > 1:
        found.sort(key=lambda transaction: transaction.since)
    return found


def _transaction_of(connection: Any) -> Transaction | None:
    try:
        transaction: Transaction | None = getattr(connection, TRANSACTION)
    except AttributeError:
        _wrap(connection)
        return _transaction_of(connection)
    # Django turns autocommit on again before it calls the functions of ``on_commit``.
    if connection.autocommit or (connection.connection is None and (transaction is None or transaction.is_lost)):
        return None
    if transaction is None:
        # ``set_autocommit`` itself has opened the connection, so it was called before it was wrapped.
        transaction = Transaction(0)
        setattr(connection, TRANSACTION, transaction)
    return transaction


def _others(connection: Any) -> list[Transaction]:
    """Return the open transactions of other connections in the same thread."""
    return open_transactions(followed - {connection.alias}) if len(followed) > 1 else []


# The wrappers. Each receives the connection and its own method.


def _set_autocommit(connection: Any, method: Callable[..., Any], autocommit: bool, *args: Any, **given: Any) -> None:
    transaction = getattr(connection, TRANSACTION)
    if autocommit:
        try:
            method(autocommit, *args, **given)
        finally:
            try:
                _finish(connection)
            finally:
                if transaction is getattr(connection, TRANSACTION):
                    setattr(connection, TRANSACTION, None)
                if transaction is not None:
                    transaction.may_have_ended(_others(connection))
    else:
        kind = Block if given.get("force_begin_transaction_with_broken_autocommit") else Transaction
        since = moment()
        method(autocommit, *args, **given)
        if getattr(connection, TRANSACTION) is None:
            setattr(connection, TRANSACTION, kind(since))


def _commit(connection: Any, method: Callable[[], Any]) -> None:
    transaction: Transaction | None = getattr(connection, TRANSACTION)
    if transaction is None or connection.in_atomic_block:
        # Django refuses this within an atomic block.
        method()
        return
    try:
        transaction.will_commit()
    except BaseException:
        # ``Atomic`` would roll back only after a DatabaseError, which a store behind need not raise.
        connection.rollback()
        raise
    is_block = type(transaction) is Block
    # Whatever happens from here on, ``Atomic`` turns autocommit on.
    others = _others(connection)
    setattr(connection, FINISH, partial(transaction.may_have_ended, others))
    try:
        method()
    except BaseException:
        if not is_block:
            _finish(connection)
        raise
    finally:
        _begin_next(connection, transaction)
    setattr(connection, FINISH, partial(transaction.committed, others))
    if not is_block and transaction.is_used:
        try:
            _finish(connection)
        finally:
            # If the cache, or the store behind it, has executed SQL on this connection, it has begun a transaction.
            method()


def _finish(connection: Any) -> None:
    """End the last transaction for the caches."""
    finish = getattr(connection, FINISH)
    setattr(connection, FINISH, None)
    if finish is not None:
        finish()


def _run_and_clear_commit_hooks(connection: Any, method: Callable[[], Any]) -> None:
    # A store in this database has atomic blocks of its own, which must not run or drop the functions of this one.
    functions, connection.run_on_commit = connection.run_on_commit, []
    try:
        _finish(connection)
    finally:
        connection.run_on_commit = functions
        method()


def _rollback(connection: Any, method: Callable[[], Any]) -> None:
    transaction: Transaction | None = None if connection.in_atomic_block else getattr(connection, TRANSACTION)
    try:
        method()
    finally:
        if transaction is not None:
            _begin_next(connection, transaction)
            transaction.rolled_back(_others(connection))


def _close(connection: Any, method: Callable[[], Any]) -> None:
    transaction: Transaction | None = getattr(connection, TRANSACTION)
    try:
        method()
    finally:
        # Django does not close a database in memory.
        if transaction is not None and (connection.closed_in_transaction or connection.connection is None):
            # The rest of an atomic block is still a transaction, of which nothing will be shared.
            lost = Transaction(0)
            lost.is_lost = True
            setattr(connection, TRANSACTION, lost)
            transaction.rolled_back(_others(connection))


def _begin_next(connection: Any, ended: Transaction) -> None:
    # Without autocommit, the next statement begins another transaction. ``Atomic`` turns autocommit on next.
    setattr(connection, TRANSACTION, None if type(ended) is Block else Transaction(moment()))


def _savepoint(connection: Any, method: Callable[[], Any]) -> Any:
    identifier = method()
    transaction = getattr(connection, TRANSACTION)
    if transaction is not None and identifier is not None:
        transaction.savepoint((connection.alias, identifier))
    return identifier


def _savepoint_rollback(connection: Any, method: Callable[[Any], Any], identifier: Any) -> None:
    try:
        method(identifier)
    finally:
        transaction = getattr(connection, TRANSACTION)
        if transaction is not None:
            transaction.roll_back_to((connection.alias, identifier), _others(connection))


def _savepoint_commit(connection: Any, method: Callable[[Any], Any], identifier: Any) -> None:
    method(identifier)
    transaction = getattr(connection, TRANSACTION)
    if transaction is not None:
        transaction.release((connection.alias, identifier))


WRAPPERS: Final[dict[str, Callable[..., Any]]] = {
    "set_autocommit": _set_autocommit,
    "commit": _commit,
    "rollback": _rollback,
    "close": _close,
    "savepoint": _savepoint,
    "savepoint_rollback": _savepoint_rollback,
    "savepoint_commit": _savepoint_commit,
    "run_and_clear_commit_hooks": _run_and_clear_commit_hooks,
}


def _wrap(connection: Any) -> None:
    if hasattr(connection, TRANSACTION):
        return
    for name, wrapper in WRAPPERS.items():
        setattr(connection, name, _wrapped(connection, name, wrapper))
    setattr(connection, FINISH, None)
    # Last: a connection with this attribute is complete. The beginning of a transaction that is open is not known.
    is_open = connection.connection is not None and not connection.autocommit
    setattr(connection, TRANSACTION, Transaction(0) if is_open else None)


def _wrapped(connection: Any, name: str, wrapper: Callable[..., Any]) -> Callable[..., Any]:
    # Without a reference to the connection, which would keep it open after the end of its thread.
    find, given = ref(connection), vars(connection).get(name)

    def call(*args: Any, **kwargs: Any) -> Any:
        connection = find()
        method = given or partial(getattr(type(connection), name), connection)
        return wrapper(connection, method, *args, **kwargs)

    return call


def follow(aliases: Iterable[str]) -> None:
    """Follow the transactions of the databases ``aliases``.

    The connections of other threads that exist are wrapped when they are used together with a cache. A transaction that
    is open then shares no values.
    """
    followed.update(aliases)
    connection_created.connect(_connected, dispatch_uid="wheelcache transactions")
    for connection in connections.all(initialized_only=True):
        _connected(connection=connection)


def _connected(*, connection: Any, **kwargs: Any) -> None:
    if connection.alias in followed:
        _wrap(connection)


def above(cache: Cache, checked: Mapping[str, Any], *, has_store: bool) -> Above:
    """Return a function that makes the layer of the transactions of Django's databases over another one.

    Args:
        cache: the entries, or the copies of those of a store.
        checked: the options of the cache. ``transactions`` is True for all databases, or a list of aliases.

    Raises:
        ValueError: if there is no such database.
    """
    given, known = checked["transactions"], tuple(settings.DATABASES)
    aliases = known if given is True else given
    unknown = [alias for alias in aliases if alias not in known]
    if unknown:
        raise ValueError(
            f"TRANSACTIONS must be True, False or a list of aliases of DATABASES ({', '.join(known)}), not "
            f"{options.shown(list(aliases))}: there is no {unknown[0]!r}"
        )
    follow(aliases)
    followed_cache = FollowedCache(cache, partial(open_transactions, aliases), checked, has_store=has_store)
    return partial(Following, followed=followed_cache, immediate=IMMEDIATE)
