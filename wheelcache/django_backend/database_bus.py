"""``COHERENCE = "database"``: a table of the site's PostgreSQL as the bus between machines.

A writer inserts a row with its notice on the site's own connection, so in the transaction of the data: the notice
becomes visible at the same moment as the data, and vanishes with a rollback. Each row has the number of its transaction
(``pg_current_xact_id()``). The reader asks for the rows of all transactions that its last snapshot did not show: those
from its ``xmax`` on, and those that were in progress (``xip``). It gets the next snapshot in the same statement, so it
misses no commit, however late, and reads none twice. A row count or a sequence would miss transactions that commit out
of order.

Rejected: NOTIFY takes a lock of the whole server at commit (1,493 transactions per second fell to 47 with commits of 20
ms), and LISTEN behind pgbouncer loses notices silently.

A standby does not know which transactions are in progress: its snapshots have no ``xip``. There, the reader asks for
all rows from ``xmin`` on, and leaves out those that it has read.

Two snapshots can be compared only if the server has not gone back in between. A server that was started again has
another start time, and a restored table has another oid. After the crash of a single backend, however, the server
recovers under the same start time, and gives the numbers of transactions that were not on the disk yet to others. A
standby then shows an older state until it has replayed the rest. PostgreSQL documents that a recovery resets all
statistics, so the time of that reset is the third part of the identity; a reset by an operator only empties the caches.
Rejected: a row in an UNLOGGED table, which a recovery empties. A standby cannot read it, and a reader would have to
write it. A smaller ``xmax`` is no proof, since it may have grown again before the next poll.

A table that was restored from a dump may contain numbers that this server has not reached. The reader ignores them, and
they are deleted: no row that a statement sees belongs to a transaction that is not below the ``xmax`` of its snapshot.

Rows below the ``xmin`` of a snapshot of ten minutes ago are deleted, in batches. Each batch inserts a row that reports
this to all readers: one that was away for so long that it may have missed some of them outdates everything.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from math import inf
from types import SimpleNamespace
from typing import Any, Final
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async
from django.db import DatabaseError, connections, router
from django.db.utils import load_backend

from wheelcache.coherence.notices import EVERYTHING, MOST_SLOTS, Notice, merged, notice_of
from wheelcache.coherence.reader import News, Reader, SourceRefused
from wheelcache.coherence.shared_stamps import SLOTS, SharedStamps
from wheelcache.machine_clock import moment
from wheelcache.runtime.clock import SystemClock

logger = logging.getLogger("wheelcache")

TABLE: Final = "wheelcache_notices"

CREATE: Final = """
CREATE TABLE wheelcache_notices (
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    id bigint GENERATED ALWAYS AS IDENTITY,
    cache text,
    payload text NOT NULL,
    PRIMARY KEY (xid, id)
)"""
"""A row without a cache reports to all readers that rows were deleted."""

OLDEST_VERSION: Final = 130_000
"""PostgreSQL 13, which has ``xid8``."""

INSERT: Final = "INSERT INTO wheelcache_notices (cache, payload) VALUES (%(cache)s, %(payload)s) RETURNING xid::text"

INSERT_ONCE: Final = """
INSERT INTO wheelcache_notices (cache, payload)
SELECT %(cache)s, CASE WHEN pg_current_xact_id()::text = %(xid)s THEN %(everything)s ELSE %(payload)s END
WHERE NOT EXISTS (
    SELECT FROM wheelcache_notices WHERE xid = pg_current_xact_id() AND cache = %(cache)s AND payload = %(everything)s
) RETURNING xid::text"""
"""The same after so many notices of the transaction ``xid`` that they become one. The server decides whether this is
still that transaction and whether its notice is there, since a rollback to a savepoint may have removed it."""

READ: Final = """
SELECT pg_current_snapshot()::text, pg_is_in_recovery(), pg_backend_pid(),
    CASE WHEN pg_backend_pid() = %(backend)s::int THEN %(recovered)s::text
    ELSE (SELECT extract(epoch FROM stats_reset)::text FROM pg_stat_archiver) END,
    extract(epoch FROM pg_postmaster_start_time())::text || ' ' || 'wheelcache_notices'::regclass::oid,
    ARRAY(
        SELECT id || ' ' || payload FROM wheelcache_notices
        WHERE (cache = %(cache)s OR cache IS NULL)
        AND (xid >= %(since)s::text::xid8 OR xid = ANY (%(open)s::text[]::xid8[]))
        AND xid < (SELECT pg_snapshot_xmax(pg_current_snapshot()))
        LIMIT %(limit)s
    )"""
"""A backend ends with a crash, so one backend is asked for the time of the reset only once. Before PostgreSQL 15, this
takes 2 ms, and longer if the process that collects the statistics is busy."""

DELETE: Final = """
WITH old AS (
    DELETE FROM wheelcache_notices WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM wheelcache_notices WHERE xid < %(below)s::text::xid8
        ORDER BY xid LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    )) RETURNING xid
)
INSERT INTO wheelcache_notices (payload) SELECT %(below)s FROM old LIMIT 1 RETURNING (SELECT count(*) FROM old)"""

DELETE_RESTORED: Final = """
DELETE FROM wheelcache_notices WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM wheelcache_notices WHERE xid >= (SELECT pg_snapshot_xmax(pg_current_snapshot()))
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED
))"""
"""The snapshot is that of this statement: with an earlier one, it would delete notices that were committed since."""

MOST_ROWS: Final = 10_000
"""Rows of one answer. Beyond it, everything is outdated, which is faster than to read them."""

BATCH: Final = 1_000
"""Rows that are deleted at a time, which takes some 5 ms."""

KEPT: Final = 600.0
"""Seconds for which rows are kept."""

MINUTE: Final = 60.0
"""Seconds between two looks for old rows, and between two checks that all connections reach the same server."""

LATEST: Final = str(2**64 - 1)
"""A transaction that there will never be: an answer since this one has no rows."""

CONNECTION_OPTIONS: Final = {
    "connect_timeout": 2,
    "tcp_user_timeout": 2_000,
    "keepalives_idle": 1,
    "keepalives_interval": 1,
    "application_name": "wheelcache",
}
"""Options of libpq by which a reader notices within 3 s that the server cannot be reached. Without the keepalives, it
would wait for two hours for the answer of a server that vanished after it had received the question."""


class Notices:
    """The table, in the form in which Django asks the database routers of the site about a model."""

    _meta: Final = SimpleNamespace(app_label="wheelcache", model_name="notices", db_table=TABLE)


def written_alias() -> str:
    """Return the alias of the database that has the table."""
    alias: str = router.db_for_write(Notices)  # type: ignore[arg-type]
    return alias


class DatabaseBus:
    """The bus of one name of stamps. See ``coherence.notices.Bus``.

    Args:
        cache: the LOCATION of the cache, the same on all machines.
        stamps: the name of the stamps of this machine.
        polled: the alias of the database to read from; None for the one that is written.
    """

    def __init__(self, cache: str, stamps: str, polled: str | None) -> None:
        self._cache = cache
        self._has_table = False
        # By connection, the number of the last transaction with notices, and the number of their slots.
        self._counted: WeakKeyDictionary[Any, tuple[str, int]] = WeakKeyDictionary()
        source = DatabaseSource(cache, polled)
        self.take_restored = source.take_restored
        self.start = Reader(stamps, source, f"the cache with the LOCATION {cache!r}").start

    def publish(self, notice: Notice) -> bool:
        """Insert a row on the connection of the running thread. In a task, which has none, another thread does it; the
        methods for coroutines wait for it: see ``inserted``.

        Raises:
            DatabaseError: if the row cannot be inserted.
        """
        if asyncio._get_running_loop() is None:
            return self._insert(notice)
        insertion = asyncio.ensure_future(sync_to_async(self._insert)(notice))
        own = _insertions_of_task.get()
        if own is None:
            own = set()
            _insertions_of_task.set(own)
        for insertions in (own, _insertions):
            insertions.add(insertion)
            insertion.add_done_callback(insertions.discard)
        return False

    def _insert(self, notice: Notice) -> bool:
        connection = connections[written_alias()]
        # A transaction that must roll back changes no data, so there is nothing to report.
        if connection.vendor != "postgresql" or connection.needs_rollback:
            return False
        connection.ensure_connection()
        # The cursor of the driver: Django's own would count the query in ``assertNumQueries``.
        with connection.wrap_database_errors, connection.connection.cursor() as cursor:
            if not self._finds_table(cursor):
                return False
            is_open = not connection.autocommit
            xid, count = self._counted.get(connection, ("", 0)) if is_open else ("", 0)
            is_usual = count + len(notice) <= MOST_SLOTS
            names = {"cache": self._cache, "payload": notice.payload(SLOTS)}
            if not is_usual:
                names |= {"everything": EVERYTHING.payload(SLOTS), "xid": xid}
            cursor.execute(INSERT if is_usual else INSERT_ONCE, names)
            if is_open and (inserted := cursor.fetchone()) is not None:
                size = MOST_SLOTS if notice.everything else len(notice)
                self._counted[connection] = inserted[0], size + (count if inserted[0] == xid else 0)
        return is_open

    def _finds_table(self, cursor: Any) -> bool:
        """Return whether there is a table. Without one, an INSERT would abort the transaction of the site."""
        if not self._has_table:
            cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [TABLE])
            self._has_table = cursor.fetchone()[0]
        return self._has_table


def stamps_on_database(location: str, polled: str | None) -> SharedStamps:
    """Return the stamps of this machine for a LOCATION, which a reader keeps current. See ``DatabaseBus``.

    Processes that poll another database have other stamps, since another reader must vouch for them: another site with
    the same LOCATION, for instance.
    """
    polled_settings = connections.settings.get(polled or written_alias(), {})
    database = [polled_settings.get(name) for name in ("HOST", "PORT", "NAME")]
    # A service of libpq names them elsewhere.
    name = f"django database {location} {database} {polled_settings.get('OPTIONS', {}).get('service')}"
    # One for all caches of the process with this LOCATION, whatever their other options.
    return SharedStamps(name, bus=_buses.setdefault(name, DatabaseBus(location, name, polled)))


_buses: Final[dict[str, DatabaseBus]] = {}
"""The buses of the process, by the names of their stamps."""


_insertions: Final[set[asyncio.Future[bool]]] = set()
"""The insertions in progress for tasks, to which asyncio itself keeps no references."""

_insertions_of_task: ContextVar[set[asyncio.Future[bool]] | None] = ContextVar("wheelcache_insertions", default=None)
"""Those that the running task, or a task that it comes from, has begun."""


async def inserted() -> None:
    """Return after the notices of the running task are inserted."""
    for insertion in tuple(_insertions_of_task.get() or ()):
        await insertion


class DatabaseSource:
    """The table, for a reader. See ``coherence.reader.Source``.

    A position is a dict: the identity of the server and whether it is a standby, the parts of the last snapshot, on a
    standby the rows that were read, and the ``xmin`` of each of the last ten minutes with its moment.
    """

    def __init__(self, cache: str, polled: str | None) -> None:
        self._cache = cache
        self._polled = polled
        self._connection: Any = None
        # The backend that answered last, and when the statistics of its server were reset.
        self._backend: tuple[int, str] = 0, ""
        # The servers that answered before the present one.
        self._earlier: set[str] = set()
        self._server: str | None = None
        self._checked = -inf
        self._deletes_below: str | None = None
        self._finds_restored = False
        self._rows_restored = 0
        # Appended by the reader, and taken by another thread.
        self._restored: deque[tuple[float, int]] = deque()
        self._inherited: list[Any] = []

    def read(self, position: Any) -> News:
        if self._connection is None:
            self._connection = _connect(self._alias)
            self._checked = -inf
        is_due = moment() - self._checked > MINUTE * 1e9
        if is_due:
            self._check_server()
        with _cursor(self._connection) as cursor:
            cursor.execute(READ, self._since(position))
            snapshot, is_standby, backend, recovered, server, rows = cursor.fetchone()
        self._backend = backend, recovered
        server = f"{server} {recovered}"
        self._check_answer(server, is_standby=is_standby)
        xmin, xmax, xip = snapshot.split(":")
        numbered = dict(row.split(" ", 1) for row in rows)
        is_same = position is not None and position["server"] == [server, is_standby]
        is_next = is_same and len(rows) <= MOST_ROWS
        notice = self._notice(position, numbered) if is_next else EVERYTHING
        if is_due:
            self._plan_deletion(position["minutes"] if is_same else [])
            self._checked = moment()
        if self._deletes_below is not None or self._finds_restored:
            self._delete()
        return News(
            notice,
            {
                "server": [server, is_standby],
                "xmin": xmin,
                "xmax": xmax,
                "xip": xip.split(",") if xip else [],
                "read": list(numbered) if is_standby else [],
                "minutes": _minutes(position["minutes"] if is_next else [], xmin),
            },
        )

    @property
    def _alias(self) -> str:
        return self._polled or written_alias()

    def _since(self, position: Any) -> dict[str, Any]:
        backend, recovered = self._backend
        names = {"cache": self._cache, "limit": MOST_ROWS + 1, "backend": backend, "recovered": recovered}
        if position is None:
            return names | {"since": LATEST, "open": []}
        if position["server"][1]:
            return names | {"since": position["xmin"], "open": []}
        return names | {"since": position["xmax"], "open": position["xip"]}

    def _notice(self, position: Any, numbered: dict[str, str]) -> Notice:
        """Return the notices of the rows that were not read before, as one."""
        payloads = [payload for number, payload in numbered.items() if number not in position["read"]]
        # Rows of transactions that the position does not show may be among the deleted ones.
        if any(payload.isdigit() and int(payload) > int(position["xmin"]) for payload in payloads):
            return EVERYTHING
        return merged(notice_of(payload, SLOTS) for payload in payloads if not payload.isdigit())

    def _check_answer(self, server: str, *, is_standby: bool) -> None:
        """Raise SourceRefused if the notices of this server do not cover the data that the site reads."""
        if is_standby and self._alias == written_alias():
            raise SourceRefused(f"the database {self._alias!r} is a standby; POLLED_DATABASE must name a standby")
        if server != self._server:
            if server in self._earlier:
                raise SourceRefused(_several_servers(self._alias))
            if self._server is not None:
                self._earlier.add(self._server)
            self._server = server

    def _check_server(self) -> None:
        """Compare the server with that of a second connection: a balancer may choose another one for each."""
        servers = set()
        with closing(_connect(self._alias)) as other:
            for connection in (self._connection, other):
                with _cursor(connection) as cursor:
                    cursor.execute("SELECT pg_postmaster_start_time()::text")
                    servers.add(cursor.fetchone())
        if len(servers) > 1:
            raise SourceRefused(_several_servers(self._alias))

    def _plan_deletion(self, minutes: list[Any]) -> None:
        """Find the ``xmin`` of ten minutes ago, below which rows are deleted."""
        self._finds_restored = True
        self._deletes_below = None
        for at, xmin in minutes:
            if moment() - at > KEPT * 1e9:
                self._deletes_below = xmin

    def _delete(self) -> None:
        """Delete a batch of old rows and one of restored rows, where the site writes. Other readers may do the same at
        the same time."""
        below, self._deletes_below = self._deletes_below, None
        finds_restored, self._finds_restored = self._finds_restored, False
        try:
            is_same = self._alias == written_alias()
            connection = self._connection if is_same else _connect(written_alias())
            try:
                with _cursor(connection) as cursor:
                    if below is not None:
                        cursor.execute(DELETE, {"below": below, "limit": BATCH})
                        deleted = cursor.fetchone()
                        if deleted is not None and deleted[0] >= BATCH:
                            self._deletes_below = below
                    if finds_restored:
                        cursor.execute(DELETE_RESTORED, {"limit": BATCH})
                        self._deleted_restored(cursor.rowcount)
            finally:
                if not is_same:
                    connection.close()
        except DatabaseError as error:
            logger.warning("Old rows of %s cannot be deleted (%s); trying again in %d s.", TABLE, error, MINUTE)

    def _deleted_restored(self, rows: int) -> None:
        """Report the restored rows after their last batch."""
        self._rows_restored += rows
        self._finds_restored = rows >= BATCH
        if self._rows_restored and not self._finds_restored:
            logger.warning(
                "%d rows of %s were restored from a dump of a server with higher transaction numbers; they are ignored "
                "and were deleted.",
                self._rows_restored,
                TABLE,
            )
            self._restored.append((SystemClock.time(), self._rows_restored))
            self._rows_restored = 0

    def take_restored(self) -> list[tuple[float, int]]:
        """Return the times at which restored rows were deleted since the last call, with their numbers."""
        return [self._restored.popleft() for _ in range(len(self._restored))]

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._backend = 0, ""
        if connection is not None:
            connection.close()

    def forget(self) -> None:
        # The driver closes a connection with its object, and the parent uses this one.
        self._inherited.append(self._connection)
        self._connection = None
        self._backend = 0, ""
        self._restored.clear()


def _minutes(earlier: list[Any], xmin: str) -> list[Any]:
    """Return ``earlier``, the pairs of moment and ``xmin`` of the last ten minutes, with one for this minute."""
    now = moment()
    if earlier and now - earlier[-1][0] < MINUTE * 1e9:
        return earlier
    # The last one that is ten minutes old is kept.
    return [*earlier[-int(KEPT / MINUTE) - 1 :], [now, xmin]]


def _connect(alias: str) -> Any:
    """Return a connection of its own to a database of the site, which any thread may use, one at a time."""
    settings = connections.settings[alias]
    options = {name: value for name, value in settings["OPTIONS"].items() if name != "pool"}
    backend = load_backend(settings["ENGINE"])
    connection = backend.DatabaseWrapper(
        {**settings, "OPTIONS": {**CONNECTION_OPTIONS, **options}, "AUTOCOMMIT": True}, alias
    )
    if connection.vendor != "postgresql":
        raise SourceRefused(f"the database {alias!r} must be PostgreSQL, not {connection.vendor}")
    connection.inc_thread_sharing()
    connection.connect()
    return connection


@contextmanager
def _cursor(connection: Any) -> Iterator[Any]:
    """Open a cursor of the driver, which raises Django's exceptions."""
    with connection.wrap_database_errors, connection.connection.cursor() as cursor:
        yield cursor


def _several_servers(alias: str) -> str:
    return f"connections to the database {alias!r} reach several servers; POLLED_DATABASE must name a single one"
