"""A cache that follows the transactions of Flask-SQLAlchemy's sessions, by the recipe in the documentation."""

import gc
from concurrent.futures import ThreadPoolExecutor

import pytest
from flask import Flask
from sqlalchemy import event, text

from tests.snippets import ROOT, snippets
from wheelcache.engine.in_memory import InMemory
from wheelcache.flask_backend import Cache, TieredCache
from wheelcache.near_cache.near_copies import NearCopies
from wheelcache.runtime.steps import drive

pytestmark = pytest.mark.pairs(full="site", of="site")

OPTIONS = {"transactions": True, "jitter": 0, "figures_dir": None}


(RECIPE,) = [code for code in snippets(ROOT / "docs/how-to/transactions.md").values() if "transaction_scope" in code]


@pytest.fixture(params=["memory", "tiered"])
def site(request, tmp_path):
    """The names that the recipe defines."""
    database, options = f"sqlite:///{tmp_path / 'database'}", dict(OPTIONS)
    recipe = RECIPE.replace('"sqlite://"', repr(database))
    if request.param == "tiered":
        options["l2"] = "SimpleCache"
        recipe = recipe.replace("wheelcache.flask_backend.WheelCache", "wheelcache.flask_backend.TieredCache")
        assert "TieredCache" in recipe
    recipe = recipe.replace('{"transactions": True}', repr(options))
    assert repr(database) in recipe
    assert repr(options) in recipe
    site = {"__name__": "shop"}
    exec(recipe, site)
    with site["app"].app_context():
        yield site
        site["db"].session.remove()
        site["db"].engine.dispose()
        site["cache"].clear()


@pytest.fixture
def app(site):
    return site["app"]


@pytest.fixture
def db(site):
    return site["db"]


@pytest.fixture
def cache(site):
    return site["cache"]


@pytest.fixture
def others(app):
    """Call a function as another visitor does, in another thread: ``others(cache.get, "key")``."""

    def in_thread(function, *args, **kwargs):
        def call():
            with app.app_context():
                return function(*args, **kwargs)

        with ThreadPoolExecutor(1) as pool:
            return pool.submit(call).result()

    return in_thread


def begin(db):
    db.session.execute(text("SELECT 1"))


def roll_back(db):
    db.session.rollback()


def remove(db):
    db.session.remove()


def test_a_value_is_visible_in_its_transaction_and_to_others_after_the_commit(db, cache, others):
    begin(db)
    cache.set("key", ["value"])
    assert cache.get("key") == ["value"]
    assert cache.has("key")
    assert others(cache.get, "key") is None
    db.session.commit()
    assert cache.get("key") == others(cache.get, "key") == ["value"]


@pytest.mark.parametrize("end", [roll_back, remove])
def test_nothing_remains_of_a_transaction_that_was_rolled_back(db, cache, others, end):
    cache.set("old", 1)
    begin(db)
    cache.set_many({"key": 1, "other": 2})
    cache.delete("old")
    assert cache.get_many("key", "other", "old") == [1, 2, None]
    assert others(cache.get_many, "key", "other", "old") == [None, None, 1]
    end(db)
    for look_up in cache.get_many, lambda *keys: others(cache.get_many, *keys):
        assert look_up("key", "other", "old") == [None, None, 1]


@pytest.mark.parametrize("delete", ["delete", "delete_many", "delete_tags", "clear"])
def test_a_delete_is_immediate_for_its_transaction_and_at_commit_for_others(db, cache, others, delete):
    cache.set("key", 1, tags=["tag"])
    begin(db)
    {
        "delete": lambda: cache.delete("key"),
        "delete_many": lambda: cache.delete_many("key"),
        "delete_tags": lambda: cache.delete_tags("tag"),
        "clear": cache.clear,
    }[delete]()
    assert cache.get("key") is None
    assert not cache.has("key")
    assert others(cache.get, "key") == 1
    db.session.commit()
    assert cache.get("key") is others(cache.get, "key") is None


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


def test_a_released_savepoint_is_dropped_with_its_transaction(db, cache, others):
    begin(db)
    with db.session.begin_nested():
        cache.set("key", 1)
    db.session.rollback()
    assert cache.get("key") is others(cache.get, "key") is None


def test_a_value_is_not_shared_if_others_have_deleted_its_key_since_the_transaction_began(db, cache, others):
    begin(db)
    assert cache.get("key") is None
    cache.set("key", "old")
    others(cache.delete, "key")
    assert cache.get("key") == "old"
    db.session.commit()
    assert cache.get("key") is None


def test_a_value_that_is_computed_in_a_transaction_is_shared_at_its_commit(db, cache, others):
    values = iter(range(10))

    @cache.memoize()
    def compute(argument):
        return next(values)

    begin(db)
    assert compute("a") == compute("a") == 0
    assert others(compute, "a") == 1
    roll_back(db)
    assert compute("a") == others(compute, "a") == 1
    begin(db)
    cache.delete_memoized(compute)
    assert compute("a") == compute("a") == 2
    assert others(compute, "a") == 1
    roll_back(db)
    assert compute("a") == others(compute, "a") == 1
    begin(db)
    cache.delete_memoized(compute)
    db.session.commit()
    assert compute("a") == others(compute, "a") == 3


def test_a_loaded_value_is_shared_at_the_commit(db, cache, others):
    begin(db)
    load = cache.cache.get_or_load
    assert load("key", lambda: 1) == load("key", lambda: 2) == 1
    assert others(cache.get, "key") is None
    db.session.commit()
    assert others(cache.get, "key") == 1


def test_add_and_inc_are_immediate_unless_the_transaction_has_set_the_key(db, cache, others):
    begin(db)
    assert cache.add("added", 1)
    assert cache.cache.inc("count") == 1
    assert others(cache.get_many, "added", "count") == [1, 1]
    cache.set("own", 1)
    assert not cache.add("own", 2)
    assert cache.cache.inc("own") == 2
    assert others(cache.get, "own") is None
    roll_back(db)
    assert cache.get_many("added", "count", "own") == [1, 1, None]


def test_add_and_inc_are_visible_in_the_transaction_that_has_deleted_the_key(db, cache, others):
    cache.set_many({"added": 7, "count": 7})
    begin(db)
    cache.delete_many("added", "count")
    assert cache.add("added", 1)
    assert cache.cache.inc("count") == 1
    assert cache.get_many("added", "count") == [1, 1]
    db.session.commit()
    assert others(cache.get_many, "added", "count") == [1, 1]


def test_add_and_inc_find_no_entry_whose_tag_the_transaction_has_dropped(db, cache, others):
    cache.cache.set_many({"added": 7, "count": 7}, tags=["tag"])
    begin(db)
    cache.delete_tags("tag")
    assert cache.add("added", 1)
    assert cache.cache.inc("count") == 1
    assert cache.get_many("added", "count") == [1, 1]
    db.session.commit()
    assert others(cache.get_many, "added", "count") == [1, 1]


def test_a_set_replaces_the_entry_that_inc_has_made_in_the_same_transaction(db, cache, others):
    begin(db)
    assert cache.get("count") is None
    assert cache.cache.inc("count") == 1
    cache.set("count", 7)
    db.session.commit()
    assert others(cache.get, "count") in (None, 7)


def test_an_add_that_others_precede_keeps_the_delete_of_the_transaction(db, cache, others, monkeypatch):
    cache.set("key", "old")
    begin(db)
    cache.delete("key")
    layer = NearCopies if isinstance(cache.cache, TieredCache) else InMemory
    delete_many = layer.delete_many

    def delete_before_others(*args):
        drive(delete_many(*args))
        others(cache.set, "key", "old")

    with monkeypatch.context() as patches:
        patches.setattr(layer, "delete_many", delete_before_others)
        assert not cache.add("key", "new")
    db.session.commit()
    assert others(cache.get, "key") is None


def test_a_request_that_ends_without_a_commit_leaves_no_value(app, db, cache, others):
    @app.route("/<int:rolls_back>")
    def view(rolls_back):
        begin(db)
        cache.set("key", "value")
        assert others(cache.get, "key") is None
        if not rolls_back:
            db.session.commit()
        return "page"

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(app.test_client().get, "/1").result().text == "page"
    assert cache.get("key") is None
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(app.test_client().get, "/0").result().text == "page"
    assert cache.get("key") == "value"


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


def test_two_sessions_of_a_thread_share_their_values_at_the_last_commit(db, cache, others):
    begin(db)
    with db.session.session_factory() as inner:
        inner.execute(text("SELECT 1"))
        assert cache.get("key") is None
        cache.set("key", 1)
        inner.commit()
    assert cache.get("key") == 1
    assert others(cache.get, "key") is None
    db.session.commit()
    assert others(cache.get, "key") == 1


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


@pytest.mark.parametrize("wrong", [{"graec": 5}, {"grace": -1}, {"load_timeout": "x"}, {"fail_safe": True}])
def test_a_transaction_accepts_no_other_options_of_get_or_load(db, cache, wrong):
    with pytest.raises((TypeError, ValueError)) as outside:
        cache.cache.get_or_load("key", lambda: 1, **wrong)
    begin(db)
    with pytest.raises((TypeError, ValueError), match=next(iter(wrong))) as within:
        cache.cache.get_or_load("key", lambda: 1, **wrong)
    assert type(within.value) is type(outside.value)
