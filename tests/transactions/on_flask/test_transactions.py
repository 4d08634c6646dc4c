"""A cache that follows the transactions of Flask-SQLAlchemy's sessions, by the recipe in the documentation."""

import gc
from concurrent.futures import ThreadPoolExecutor

import pytest
from flask import Flask
from sqlalchemy import event, text

from tests.snippets import ROOT, snippets
from wheelcache.flask_backend import Cache

pytestmark = pytest.mark.pairs(full="site", of="site")


(RECIPE,) = [code for code in snippets(ROOT / "docs/how-to/transactions.md").values() if "transaction_scope" in code]


@pytest.fixture(params=["WheelCache", "TieredCache"])
def site(request, tmp_path):
    """The names that the recipe defines."""
    options = {"transactions": True, "jitter": 0, "figures_dir": None}
    if request.param == "TieredCache":
        options["l2"] = "SimpleCache"
    recipe = RECIPE
    for documented, tested in {
        '"sqlite://"': repr(f"sqlite:///{tmp_path / 'database'}"),
        "wheelcache.flask_backend.HostCache": f"wheelcache.flask_backend.{request.param}",
        '{"transactions": True}': repr(options),
    }.items():
        assert documented in recipe
        recipe = recipe.replace(documented, tested)
    site = {"__name__": "shop"}
    exec(recipe, site)
    with site["app"].app_context():
        yield site
        site["db"].session.remove()
        site["db"].engine.dispose()
        site["cache"].clear()


@pytest.fixture
def db(site):
    return site["db"]


@pytest.fixture
def cache(site):
    return site["cache"]


@pytest.fixture
def others(site):
    """Call a function as another visitor does, in another thread: ``others(cache.get, "key")``."""

    def in_thread(function, *args, **kwargs):
        def call():
            with site["app"].app_context():
                return function(*args, **kwargs)

        with ThreadPoolExecutor(1) as pool:
            return pool.submit(call).result()

    return in_thread


def begin(db):
    db.session.execute(text("SELECT 1"))


@pytest.mark.parametrize("end", ["rollback", "remove"])
def test_nothing_remains_of_a_transaction_that_was_rolled_back(db, cache, others, end):
    cache.set("old", 1)
    begin(db)
    cache.set_many({"key": 1, "other": 2})
    cache.delete("old")
    assert cache.get_many("key", "other", "old") == [1, 2, None]
    assert others(cache.get_many, "key", "other", "old") == [None, None, 1]
    getattr(db.session, end)()
    for look_up in cache.get_many, lambda *keys: others(cache.get_many, *keys):
        assert look_up("key", "other", "old") == [None, None, 1]


def test_a_rollback_to_a_savepoint_drops_its_values_only(db, cache, others):
    begin(db)
    cache.set("before", 1)
    savepoint = db.session.begin_nested()
    cache.set("within", 1)
    cache.delete("before")
    assert cache.get_many("before", "within") == [None, 1]
    savepoint.rollback()
    assert cache.get_many("before", "within") == [1, None]
    with db.session.begin_nested():
        cache.set("released", 1)
    assert others(cache.get_many, "before", "within", "released") == [None, None, None]
    db.session.commit()
    assert others(cache.get_many, "before", "within", "released") == [1, None, 1]


def test_a_value_that_is_computed_in_a_transaction_is_shared_at_its_commit(db, cache, others):
    values = iter(range(10))

    @cache.memoize()
    def compute(argument):
        return next(values)

    begin(db)
    assert compute("a") == compute("a") == 0
    assert others(compute, "a") == 1
    db.session.rollback()
    begin(db)
    cache.delete_memoized(compute)
    assert compute("a") == compute("a") == 2
    db.session.rollback()
    assert compute("a") == others(compute, "a") == 1
    begin(db)
    cache.delete_memoized(compute)
    db.session.commit()
    assert compute("a") == others(compute, "a") == 3


@pytest.mark.parametrize("site", ["WheelCache"], indirect=True)
def test_a_value_whose_tag_others_dropped_while_it_was_computed_replaces_their_entry_by_nothing(db, cache, others):
    begin(db)
    begun = cache.cache.begin(("tag",))
    others(cache.cache.delete_tags, "tag")
    others(cache.set, "key", "theirs")
    cache.cache.keep("key", "old", 60, begun)
    assert cache.get("key") is None
    db.session.commit()
    assert others(cache.get, "key") is None


def test_deletes_are_applied_if_the_outcome_of_the_commit_is_unknown(db, cache, others):
    cache.set("key", "old")
    begin(db)
    cache.delete("key")
    cache.set("new", 1)

    @event.listens_for(db.engine, "commit")
    def lose(connection):
        raise ConnectionError("lost")

    with pytest.raises(ConnectionError):
        db.session.commit()
    event.remove(db.engine, "commit", lose)
    db.session.remove()
    assert cache.get_many("key", "new") == others(cache.get_many, "key", "new") == [None, None]


def test_a_session_that_was_never_closed_leaves_no_open_transaction(db, cache, others):
    session = db.session.session_factory()
    session.execute(text("SELECT 1"))
    cache.set("key", 1)
    assert others(cache.get, "key") is None
    del session
    gc.collect()
    assert cache.get("key") is None
    cache.set("key", 2)
    assert others(cache.get, "key") == 2


def test_a_value_of_two_sessions_is_as_old_as_the_first_one_even_if_that_ends_first(db, cache, others):
    begin(db)
    others(cache.delete, "key")
    cache.set("key", "read by the first session")
    with db.session.session_factory() as later:
        later.execute(text("SELECT 1"))
        db.session.commit()
        later.commit()
    assert others(cache.get, "key") is None


def test_a_loader_may_end_the_transaction(db, cache, others):
    begin(db)
    assert cache.get("key") is None
    assert cache.cache.get_or_load("key", lambda: db.session.commit() or ["value"], 60) == ["value"]
    assert others(cache.get, "key") is None
    assert cache.cache.get_or_load("key", lambda: ["next"], 60) == others(cache.get, "key") == ["next"]


def test_the_option_must_be_a_bool():
    app = Flask("shop")
    app.config.from_mapping(
        CACHE_TYPE="wheelcache.flask_backend.WheelCache", CACHE_OPTIONS={"transactions": ["default"]}
    )
    with pytest.raises(TypeError, match=r"transactions must be True or False, not \['default'\]"):
        Cache(app)


@pytest.mark.parametrize("site", ["TieredCache"], indirect=True)
def test_a_store_of_whole_seconds_keeps_a_value_no_longer_than_its_timeout(db, cache, others):
    begin(db)
    cache.set("short", 1, timeout=1)
    cache.set("long", 1, timeout=60)
    db.session.commit()
    assert others(cache.get_many, "short", "long") == [None, 1]
