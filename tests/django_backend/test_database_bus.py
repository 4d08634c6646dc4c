"""``COHERENCE = "database"`` over a real PostgreSQL, with processes on several machines."""

import pytest

from tests.machines import Machines, execute, payloads
from tests.waiting import paused, until
from wheelcache.coherence.reader import TRUST

pytestmark = [pytest.mark.servers, pytest.mark.deep]

# Writes.


# The value is gone before it can be increased if the reader is late.
INCREMENT = """
while True:
    try:
        cache.set("k", 1)
        cache.incr("k")
        break
    except ValueError:
        pass
"""


@pytest.mark.parametrize(
    "write",
    [
        "cache.delete('k')",
        "cache.set('k', 'new')",
        "cache.set_many({'k': 'new', 'other': 1})",
        "cache.delete_many(['k', 'other'])",
        "cache.delete_tags('tag')",
        "cache.clear()",
        "cache.delete_pattern('k*')",
        INCREMENT,
        "__import__('asyncio').run(cache.adelete('k'))",
        "__import__('asyncio').run(cache.aset('k', 'new'))",
        "__import__('asyncio').run(cache.adelete_tags('tag'))",
    ],
)
def test_a_write_outdates_the_values_of_other_machines(pair, write):
    a, b = pair
    b("cache.delete('k'); cache.get('k'); cache.get_or_set('k', 'old', tags=['tag'])")
    b.loads("kept")
    # A fill that a notice of the lines above outdates is no value of this test.
    assert until(lambda: b("cache.get_or_set('k', 'old', tags=['tag'])") == "old" and b("cache.get('k')") == "old")
    a(write)
    assert until(lambda: b.has_lost())


def test_a_fill_outdates_no_values_of_other_machines(pair, server):
    a, _ = pair
    before = payloads(server)
    a("cache.get('f'); cache.set('f', 1); cache.get_or_set('g', 2)")
    assert payloads(server) == before


COUNTED = """
from tests.backends.test_load_counts import FLOWS, DjangoSite

def counted():
    site = DjangoSite()
    site.backend, found = cache, {}
    cache.close()
    for flow in FLOWS:
        cache.clear()
        site.run(flow)
        found[flow.__name__] = site.loads() - site.calls
    return found
"""


@pytest.mark.parametrize("options", [{}, {"TRANSACTIONS": True}, {"tiered": True}, {"FILL_WAIT": 5}], ids=repr)
def test_each_computation_is_one_load(machines, options):
    process = machines.process("counts", **options)
    process("call_command('createcachetable', verbosity=0)")
    process.loads()
    process(COUNTED)
    found = process("counted()")
    assert found == dict.fromkeys(found, 0)


def test_a_notice_of_a_block_is_seen_if_and_only_if_it_commits(pair):
    a, b = pair
    b.loads("rolled back")
    a("transaction.set_autocommit(False); cache.delete('rolled back'); cache.delete('k')")
    a("transaction.rollback()")
    a("cache.delete('k'); transaction.commit(); transaction.set_autocommit(True)")
    assert until(lambda: b.has_lost("k"))
    assert not b.has_lost("rolled back")


def test_a_transaction_that_was_open_during_many_polls_is_not_missed(pair):
    a, b = pair
    a("transaction.set_autocommit(False); cache.delete('late')")
    b.loads("late")
    for _ in range(5):
        a.begin("1")
        a.end()
        b("cache.delete('other')")
        assert until(lambda: b.keeps("other"))
    assert not b.has_lost("late")
    a("transaction.commit()")
    assert until(lambda: b.has_lost("late"))


def test_an_invalidation_in_a_savepoint_that_is_rolled_back_is_not_reported(pair, server):
    a, _ = pair
    before = len(payloads(server))
    a("""
with transaction.atomic():
    cache.delete("outer")
    try:
        with transaction.atomic():
            cache.delete("inner")
            raise KeyError
    except KeyError:
        pass
""")
    assert len(payloads(server)) == before + 1


def test_more_than_a_thousand_keys_in_a_transaction_become_one_clear(pair, server):
    a, b = pair
    before = len(payloads(server))
    a("""
with transaction.atomic():
    for number in range(1200):
        cache.delete(f"key {number}")
""")
    found = payloads(server)[before:]
    assert [each for each in found if "everything" in each] == [found[-1]]
    assert len(found) <= 1001
    assert until(lambda: b.has_lost())
    a("transaction.set_autocommit(False); [cache.delete(str(number)) for number in range(1001)]; transaction.commit()")
    a("transaction.set_autocommit(True)")
    assert "everything" in payloads(server)[-1]
    found = payloads(server)[before:]
    a("with transaction.atomic(): cache.delete_many(map(str, range(1200))), cache.delete('x')")
    assert ["everything" in each for each in payloads(server)[before + len(found) :]] == [True]


def test_a_clear_that_a_savepoint_has_rolled_back_does_not_count(pair, server):
    a, _ = pair
    before = len(payloads(server))
    a("""
with transaction.atomic():
    savepoint = connection.savepoint()
    cache.clear()
    cache.delete("is covered by the clear")
    transaction.savepoint_rollback(savepoint)
    cache.delete("k")
""")
    assert len(payloads(server)) == before + 1


def test_an_unknown_payload_outdates_everything(pair, server):
    _, b = pair
    execute(server, "INSERT INTO wheelcache_notices (cache, payload) VALUES ('site', '{\"streams\": [1]}')")
    assert until(lambda: b.has_lost())


def test_notices_of_other_caches_are_ignored(pair, server):
    _, b = pair
    execute(
        server,
        "INSERT INTO wheelcache_notices (cache, payload) VALUES ('another', '')",
        "INSERT INTO wheelcache_notices (cache, payload) VALUES ('site', '{}')",
    )
    b.loads("other")
    assert until(lambda: b.has_lost())


def test_django_counts_no_query(pair):
    a, _ = pair
    a("connection.force_debug_cursor = True; cache.delete('k')")
    assert a("len(connection.queries)") == 0


def test_a_broken_transaction_reports_nothing_and_raises_nothing(pair, server):
    a, _ = pair
    before = len(payloads(server))
    a("""
with transaction.atomic():
    transaction.set_rollback(True)
    cache.delete("k")
""")
    assert len(payloads(server)) == before


# One reader per machine.


def test_one_process_of_a_machine_reads_and_a_killed_reader_is_replaced_without_a_clear(machines):
    first = machines.process()
    first.loads()
    second = machines.process()
    second.loads("other")
    assert first.reads_notices
    assert not second.reads_notices
    first.kill()
    assert until(lambda: second.reads_notices)
    assert second.keeps("third")
    assert not second.has_lost("other")


def test_sites_with_the_same_location_and_other_databases_have_readers_of_their_own(machines, server):
    """They run as the same user, so their files are in the same directory."""
    machines.process().loads()
    execute(server, "DROP DATABASE IF EXISTS another_site WITH (FORCE)", "CREATE DATABASE another_site")
    databases = {"default": {**server.django_database, "NAME": "another_site"}}
    a, b = (machines.process(name, databases=databases) for name in "ab")
    a("call_command('migrate', verbosity=0)")
    a.loads()
    b("cache.delete('k')")
    assert until(a.has_lost)


def test_a_stopped_reader_makes_the_values_of_its_machine_untrusted(machines):
    first, second = machines.process(trust=TRUST), machines.process(trust=TRUST)
    other = machines.process("b")
    first.loads()
    second.loads("other")
    other.loads("elsewhere")
    with paused(first):
        assert until(lambda: second.has_lost("other"))
        assert not other.has_lost("elsewhere")
    # Nothing was written meanwhile, so the values may be used again.
    assert until(lambda: not second.has_lost("other"))


def test_the_notices_that_a_stopped_reader_has_missed_come_before_its_trust(machines):
    first, second = machines.process(trust=TRUST), machines.process(trust=TRUST)
    other = machines.process("b")
    first.loads()
    second.loads("other")
    second.loads("unchanged")
    with paused(first):
        assert until(lambda: second.has_lost("other"))
        other("cache.delete('other')")
    assert until(lambda: not second.has_lost("unchanged"))
    assert second.has_lost("other")


def test_a_reader_goes_on_after_a_fork_and_its_child_does_not_read(machines):
    process = machines.process()
    process.loads()
    child = process("import os; child = os.fork() or os._exit(0); os.waitpid(child, 0)")
    assert child is None
    process("cache.delete('k')")
    assert until(lambda: process.keeps())
    assert process.reads_notices


# The table and the connections.


def test_a_restore_of_the_table_outdates_everything(pair, server):
    a, b = pair
    execute(
        server,
        "CREATE TABLE restored (LIKE wheelcache_notices INCLUDING ALL)",
        "ALTER TABLE wheelcache_notices RENAME TO replaced",
        "ALTER TABLE restored RENAME TO wheelcache_notices",
    )
    assert until(lambda: a.has_lost() and b.has_lost())
    for each in (a, b):
        each.loads()


def test_a_terminated_connection_loses_nothing(pair, server):
    a, b = pair
    server.terminate_connections("wheelcache")
    a("cache.delete('k')")
    assert until(lambda: b.has_lost() and b.keeps("new") and b.has_lost())


def test_without_the_table_no_value_is_returned_and_writes_do_not_fail(prepared, tmp_path, server):
    machines = Machines(prepared, tmp_path, {"default": server.django_database})
    try:
        process = machines.process()
        assert process("cache.set('k', 1)")
        process("with transaction.atomic(): cache.delete('k'), connection.cursor().execute('SELECT 1')")
        assert not process.keeps()
        process("call_command('migrate', verbosity=0)")
        process.loads()
    finally:
        machines.end()


def test_a_database_that_is_not_postgresql_returns_no_values(prepared, tmp_path):
    sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "db")}
    machines = Machines(prepared, tmp_path, {"default": sqlite})
    try:
        process = machines.process()
        process("call_command('migrate', verbosity=0)")
        process("cache.set('k', 1); cache.delete('k')")
        assert not process.keeps()
    finally:
        machines.end()


# Copies.


def test_the_copies_of_a_database_cache_are_current_on_all_machines(migrated, server):
    with migrated(server, tiered=True) as machines:
        a, b = machines.process("a"), machines.process("b")
        a("call_command('createcachetable', verbosity=0)")
        a("cache.set('k', 'old')")
        for each in (a, b):
            assert until(lambda each=each: each("cache.get('k'), cache.store.cache.get(cache._key('k', None))")[1])
        a("cache.set('k', 'new')")
        assert until(lambda: b("cache.get('k')") == "new")
        before = len(payloads(server))
        a("cache.set_many({'k': 'newer', 'l': 1})")
        assert len(payloads(server)) == before + 1
        assert until(lambda: b("cache.get('k')") == "newer")
        a("__import__('asyncio').run(cache.aset('k', 'newest'))")
        assert until(lambda: b("cache.get('k')") == "newest")
