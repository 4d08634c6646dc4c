"""A process that is killed by SIGKILL during its COMMIT, after the first of its two invalidations."""

import gc
import json
from contextlib import contextmanager

import pytest
from django.core.cache import caches
from django.core.signals import request_finished
from django.db import connection
from django.test import override_settings
from flask import Flask

from tests.scripts import start
from tests.shared_stamps import keep_in
from tests.transactions.conftest import FOLLOWS, TIERED, WHEEL
from wheelcache.coherence import commits
from wheelcache.coherence.shared_stamps import SharedStamps
from wheelcache.django_backend import memoize
from wheelcache.flask_backend import Cache, transaction_scope

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("on_disk")]

COMMITTER = """
import json, os, signal, sys
import django
from django.conf import settings

place, database, caches_of_the_test, invalidate = json.loads(sys.argv[1])
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": database}}, CACHES=caches_of_the_test
)
django.setup()

from pathlib import Path
from django.core.cache import caches
from django.db import connection, transaction
from tests.shared_stamps import keep_in

keep_in(Path(place))
cache = caches["default"]
commit = connection._commit

def commit_after_the_others():
    print("committing", flush=True)
    how = sys.stdin.readline().strip()
    if how == "fork":
        # The child, which lives on, must not pass for its parent.
        if os.fork() == 0:
            print("forked", flush=True)
            sys.stdin.readline()
            os._exit(0)
        how = "kill"
    commit()
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)

connection._commit = commit_after_the_others
with transaction.atomic():
    connection.cursor().execute("UPDATE row SET value = 'new'")
    if invalidate == "pattern":
        cache.delete_pattern("k*")
    elif invalidate == "clear":
        cache.clear()
    elif invalidate == "tag":
        cache.delete_tags("tag")
    else:
        cache.delete("key")
print("committed", flush=True)
sys.stdin.readline()
"""


def read_row():
    with connection.cursor() as cursor:
        cursor.execute("SELECT value FROM row")
        return cursor.fetchone()[0]


def get_and_set(cache):
    value = cache.get("key")
    if value is None:
        value = read_row()
        cache.set("key", value, tags=["tag"])
    request_finished.send(sender=None)
    return value


@memoize(60, tags=["tag"])
def memoized():
    return read_row()


READS = {
    "get and set": get_and_set,
    "get_or_set": lambda cache: cache.get_or_set("key", read_row, tags=["tag"]),
    "memoize": lambda cache: memoized(),
}


@pytest.fixture
def row(on_disk):
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE row (value text)")
        cursor.execute("INSERT INTO row VALUES ('old')")


@pytest.fixture
def settings_of_caches(request, alias, tmp_path):
    host = {"COHERENCE": "host", **FOLLOWS}
    store = {"BACKEND": "django.core.cache.backends.filebased.FileBasedCache", "LOCATION": str(tmp_path / "store")}
    if alias == "redis":
        url = request.getfixturevalue("empty_redis").url
        store = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": url}
    if alias == "host":
        return {"default": {"BACKEND": WHEEL, "LOCATION": str(tmp_path), "OPTIONS": host}}
    options = host if alias == "store of the host" else FOLLOWS
    return {"default": {"BACKEND": TIERED, "OPTIONS": {"L2": "store", **options}}, "store": store}


ALIASES = ["host", "store of the host", "store", pytest.param("redis", marks=pytest.mark.servers)]


@pytest.fixture
def commit(cache, settings_of_caches, tmp_path, row):
    """Let another process begin a COMMIT that invalidates what the test reads. ``end(how)`` lets it end it."""

    @contextmanager
    def begin(invalidate):
        database = str(connection.settings_dict["NAME"])
        given = json.dumps([str(tmp_path), database, settings_of_caches, invalidate])
        with start(COMMITTER, given) as process:

            def end(how):
                process.stdin.write(f"{how}\n")
                process.stdin.flush()
                if how == "commit":
                    assert process.stdout.readline() == "committed\n"
                    return
                if how == "fork":
                    # The child has closed the file that its parent locked, which may be after the end of the parent.
                    assert process.stdout.readline() == "forked\n"
                process.wait()

            try:
                assert process.stdout.readline() == "committing\n", process.stderr.read()
                yield end
            finally:
                process.kill()

    return begin


@pytest.fixture
def cache(settings_of_caches, tmp_path, monkeypatch):
    keep_in(tmp_path, monkeypatch.setattr)
    with override_settings(CACHES=settings_of_caches):
        yield caches["default"]
        caches["default"].clear()


@pytest.mark.pairs
@pytest.mark.parametrize("alias", ALIASES)
@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("invalidate", ["key", "tag"])
def test_no_value_from_before_a_commit_is_kept_if_its_process_is_killed(cache, commit, read, invalidate):
    if read is READS["memoize"]:
        invalidate = "tag"
    assert read(cache) == "old"
    with commit(invalidate) as end:
        assert read(cache) == "old"
        end("kill")
        assert read(cache) == "new"


@pytest.mark.parametrize("alias", ["host"])
@pytest.mark.parametrize("invalidate", ["clear", "pattern"])
def test_no_value_at_all_is_kept_during_the_commit_of_a_clear(cache, commit, invalidate):
    with commit(invalidate) as end:
        assert cache.get_or_set("key", read_row) == "old"
        assert cache.get_or_set("another", read_row) == "old"
        end("kill")
        assert cache.get_many(["key", "another"]) == {}


@pytest.mark.parametrize("alias", ALIASES)
def test_values_are_kept_again_after_a_commit(cache, commit):
    with commit("key") as end:
        assert READS["get_or_set"](cache) == "old"
        end("commit")
        assert READS["get_or_set"](cache) == cache.get("key") == "new"


@pytest.mark.parametrize("alias", ["host", "store of the host"])
def test_values_are_kept_again_some_time_after_the_process_of_a_commit_was_killed(cache, commit, others, monkeypatch):
    loads = iter(range(100))

    def load():
        return cache.get_or_set("key", lambda: next(loads))

    with commit("key") as end:
        monkeypatch.setattr(commits, "SERVER_TIME", 0)
        # The process lives, and so does the child that it will leave behind.
        assert [load() for _ in range(4)] == [0, 1, 2, 3]
        monkeypatch.setattr(commits, "SERVER_TIME", 100)
        end("fork")
        # The server may still execute the COMMIT.
        assert [load() for _ in range(4)] == [4, 5, 6, 7]
        monkeypatch.setattr(commits, "SERVER_TIME", 0)
        assert cache.get("key") is None
        assert others(load) == 8
        cache.set("key", "begun before the end of the commit")
        assert load() == load() == 9


def test_each_killed_commit_has_its_own_time_although_it_takes_the_lane_of_an_earlier_one(tmp_path, monkeypatch):
    stamps, slot, now = SharedStamps("test", tmp_path), 7, [commits.moment()]
    monkeypatch.setattr(commits, "moment", lambda: now[0])

    for _ in range(2):
        # Its object is dropped, so it counts as killed.
        stamps.begin_commit([slot])
        for _ in range(int(commits.SERVER_TIME)):
            assert stamps.is_committing(slot)
            now[0] += 10**9
    assert stamps.is_committing(slot)
    assert not stamps.is_committing(slot)


def test_the_commit_of_a_flask_site_that_never_ends_leaves_no_memoized_value_from_before_it(own_stamps, others):
    """The marks of a transaction end with its object, as they do with its process."""
    app = Flask(__name__)
    settings = {"coherence": "host", "transactions": True, "log_interval": None}
    app.config.from_mapping(CACHE_TYPE="wheelcache.flask_backend.WheelCache", CACHE_OPTIONS=settings)
    cache, value = Cache(app), "old"

    @cache.memoize(60)
    def memoized():
        return value

    def read():
        with app.app_context():
            return memoized()

    class Session:
        """Stands for a transaction."""

    def begin_commit():
        with app.app_context():
            session = Session()
            transaction_scope.begin(session)
            cache.delete_memoized(memoized)
            transaction_scope.will_commit(session)
            assert others(read) == others(read) == "old"

    assert read() == "old"
    begin_commit()
    gc.collect()
    value = "new"
    assert read() == "new"
