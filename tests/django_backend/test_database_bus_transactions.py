"""``COHERENCE = "database"`` with TRANSACTIONS: the invalidations of a block are applied at its end."""

from itertools import count

import pytest

from tests.machines import execute, payloads
from tests.waiting import until

pytestmark = [pytest.mark.servers, pytest.mark.deep]


@pytest.fixture(params=[False, True], ids=["in memory", "over rows"])
def followed(request, migrated, server):
    """Two machines whose caches follow the transactions of the database with the notices."""
    with migrated(server, tiered=request.param, TRANSACTIONS=True) as machines:
        a, b = machines.process("a"), machines.process("b")
        a("call_command('createcachetable', verbosity=0)")
        execute(server, "CREATE TABLE data (version int)", "INSERT INTO data VALUES (1)")
        for each in (a, b):
            each(LOAD)
            each.loads(f"of {each.pid}")
        yield a, b


LOAD = """
def load():
    with connection.cursor() as cursor:
        cursor.execute("SELECT version FROM data")
        return cursor.fetchone()[0]

def get():
    return cache.get_or_set("version", load)

def write(version):
    connection.cursor().execute("UPDATE data SET version = %s", [version])
    cache.delete("version")
"""


def test_a_block_that_commits_is_seen_on_all_machines_and_one_that_rolls_back_on_none(followed):
    a, b = followed
    assert [a("get()"), b("get()")] == [1, 1]
    a("with transaction.atomic(): write(2)")
    assert a("get()") == 2
    assert until(lambda: b("get()") == 2)
    a("""
with transaction.atomic():
    write(3)
    get()
    transaction.set_rollback(True)
""")
    for _ in range(5):
        assert [a("get()"), b("get()")] == [2, 2]


def test_values_that_a_block_has_written_are_shared_and_the_connection_is_usable(followed):
    a, _ = followed
    a("seen = []")
    attempts = count()

    def are_shared():
        number = next(attempts)
        a(f"""
keys = ["first:{number}", "second:{number}"]
with transaction.atomic():
    transaction.on_commit(lambda: seen.append([*map(cache.get, keys), connection.get_autocommit()]))
    cache.get_many(keys)
    cache.set_many(dict(zip(keys, (1, 2))))
    cache.delete("third")
""")
        return a("seen")[number] == [1, 2, True] and a("[*cache.get_many(keys).values()]") == [1, 2]

    # A value is not kept if its slot was written meanwhile, or if the reader is late, as on a busy machine.
    assert until(are_shared)
    assert all(autocommit for _, _, autocommit in a("seen"))
    assert a("connection.get_autocommit() and connection.connection.info.transaction_status.name") == "IDLE"


def test_manual_transactions_are_reported_and_the_connection_is_usable(followed):
    a, b = followed
    assert b("get()") == 1
    a("transaction.set_autocommit(False); write(2); cache.get('key'); cache.set('key', 1); transaction.commit()")
    a("transaction.rollback(); transaction.set_autocommit(True)")
    assert a("get(), cache.get('key')") == [2, 1]
    assert until(lambda: b("get()") == 2)


def test_the_invalidations_of_a_block_are_one_notice_in_its_transaction(followed, server, request):
    a, _ = followed
    is_over_rows = request.node.callspec.params["followed"]
    before = len(payloads(server))
    a("""
with transaction.atomic():
    cache.delete("outer")
    cache.delete_tags("tag", "another")
    try:
        with transaction.atomic():
            cache.clear()
            raise KeyError
    except KeyError:
        pass
""")
    found = payloads(server)[before:]
    assert not any("everything" in each for each in found)
    # A store that is written again after the commit, because another process may have filled it, reports that too.
    assert 1 <= len(found) <= 1 + is_over_rows
    a("with transaction.atomic(): [cache.delete_tags(str(number)) for number in range(1001)]")
    assert all("everything" in each for each in payloads(server)[before + len(found) :])


def test_a_block_whose_notice_cannot_be_inserted_is_not_committed(followed, server):
    a, b = followed
    assert [a("get()"), b("get()")] == [1, 1]
    execute(server, "ALTER TABLE wheelcache_notices ADD CONSTRAINT refused CHECK (payload = '') NOT VALID")
    with pytest.raises(AssertionError, match="IntegrityError"):
        a("with transaction.atomic(): write(2)")
    assert a("load()") == 1
    execute(server, "ALTER TABLE wheelcache_notices DROP CONSTRAINT refused")
    a("with transaction.atomic(): write(3)")
    assert until(lambda: b("get()") == 3)


@pytest.mark.parametrize("followed", [False], indirect=True)
def test_a_value_that_a_repeatable_read_loads_before_a_commit_elsewhere_is_not_kept(followed):
    a, b = followed
    b.loads("marker")
    b("""
block = transaction.atomic()
block.__enter__()
connection.cursor().execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
first = load()
""")
    a("with transaction.atomic(): write(2), cache.delete('marker')")
    assert until(lambda: b.has_lost("marker"))
    # The notice has arrived, so only the beginning of the block shows that this value is outdated.
    assert b("get()") == 1
    b("block.__exit__(None, None, None)")
    assert until(lambda: b("get()") == 2)
    for _ in range(5):
        assert b("get()") == 2
