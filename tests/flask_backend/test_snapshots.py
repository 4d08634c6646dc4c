"""The entries of an app's caches survive its processes: ``snapshot`` and what sees to it."""

import json
import sys

import flask
import flask_caching
import pytest

from tests import restarts, watched_site
from tests.engines import engine
from tests.flask_backend.conftest import BACKEND
from tests.waiting import until
from wheelcache.errors import FileUnusable

APP = "tests.flask_backend.snapshot_app"
COMMAND = ["-m", "flask", "--app", APP, "wheelcache"]
SERVERS = {
    "gunicorn sync": (["-m", "gunicorn", "--workers=2", "--bind=127.0.0.1:{port}", f"{APP}:app"], 2),
    "gunicorn gthread": (["-m", "gunicorn", "--workers=2", "--threads=4", "--bind=127.0.0.1:{port}", f"{APP}:app"], 2),
    "waitress": (["-m", APP, "{port}"], 1),
    "waitress's command": (["-m", "waitress", "--listen=127.0.0.1:{port}", f"{APP}:app"], 1),
    "flask run": (["-m", "flask", "--app", APP, "run", "--port={port}"], 1),
}
VALUES = {"list": [1, {"a": (2, 3)}], "text": "text", "number": 7, "bytes": b"\0"}


@pytest.fixture
def place(tmp_path):
    return tmp_path / "snapshots"


@pytest.fixture
def restart(make, place):
    """Make a backend whose entries are kept, in the place of the one before, which is saved as at an exit."""
    made = []

    def restart(**options):
        end()
        made.append(make(**{"snapshot": str(place), "name": "kept", **options}))
        return made[-1]

    def end():
        if made:
            engine = engine(made.pop())
            if engine.is_in_use():
                assert engine.keeper.save()
            engine.close()

    yield restart
    end()


USES = {
    "get": lambda cache: cache.get("list"),
    "get_many": lambda cache: cache.get_many("list")[0],
    "get_dict": lambda cache: cache.get_dict("list")["list"],
    "get_or_load": lambda cache: cache.get_or_load("list", lambda: pytest.fail("it was there")),
    "set": lambda cache: cache.set("other", 1) and cache.get("list"),
    "add": lambda cache: "added" if cache.add("list", "another") else cache.get("list"),
    "has": lambda cache: cache.has("list") and cache.get("list"),
    "inc": lambda cache: cache.inc("number") == 8 and cache.get("list"),
    "delete": lambda cache: cache.delete("text") and cache.get("list"),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_whatever_uses_the_cache_first_finds_what_was_there_before(restart, use):
    restart().set_many(VALUES)
    cache = restart()
    assert not engine(cache).is_in_use()
    assert use(cache) == VALUES["list"]
    assert engine(cache).is_in_use()


@pytest.mark.parametrize(
    "options",
    [{}, {"key_prefix": "prefix"}, {"max_bytes": 100_000}, {"snapshot_key": "secret"}, {"coherence": "host"}],
    ids=str,
)
def test_every_value_comes_back_as_it_was_and_isolated(restart, options):
    restart(**options).set_many(VALUES)
    cache = restart(**options)
    assert cache.get_dict(*VALUES) == VALUES
    cache.get("list").append("mine")
    assert cache.get("list") == VALUES["list"]


def test_the_time_in_between_counts(restart):
    cache = restart()
    cache.set("soon", 1, 0.2)
    cache.set("never", 1, 0)
    cache = restart()
    assert until(lambda: cache.get("soon") is None)
    assert engine(cache).expires_in("never") is None


def test_what_was_cached_and_memoized_is_not_computed_again(place):
    computed = []

    def restarted():
        app = flask.Flask("site")
        app.config.from_mapping(CACHE_TYPE=BACKEND, CACHE_OPTIONS={"snapshot": str(place), "figures_dir": None})
        cache = flask_caching.Cache(app)

        @app.get("/")
        @cache.cached(60)
        def view():
            computed.append("view")
            return "page"

        @cache.memoize(60)
        def square(number):
            computed.append(number)
            return [number * number]

        with app.app_context():
            assert square(3) == [9]
        assert app.test_client().get("/").text == "page"
        engine = engine(app.extensions["cache"][cache])
        assert engine.keeper.save()
        engine.close()

    restarted()
    restarted()
    assert sorted(map(str, computed)) == ["3", "view"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"snapshot": "relative/path"}, "snapshot must be an absolute path, or None, not 'relative/path'"),
        ({"snapshot": 5}, "snapshot must be an absolute path, or None, not 5"),
        ({"snapshot_interval": 0}, "snapshot_interval must be a number of seconds > 0, at least 0.000001, not 0"),
        ({"snapshot_interval": None}, "snapshot_interval must be a number of seconds > 0, at least 0.000001, not None"),
        ({"snapshot_key": ""}, "snapshot_key must be a string or bytes, not empty, or None"),
        ({"snapshot_key": 54321}, "snapshot_key must be a string or bytes, not empty, or None"),
    ],
)
def test_a_wrong_option_is_named_with_what_it_takes(make, options, complaint):
    with pytest.raises((TypeError, ValueError)) as refused:
        make(**options)
    assert complaint in str(refused.value)
    assert "54321" not in str(refused.value)


@pytest.mark.parametrize("name", ["no/parent", "a file", "for all"])
def test_a_directory_that_cannot_be_used_is_an_error_that_names_the_option_and_says_why(make, tmp_path, name):
    (tmp_path / "a file").touch()
    (tmp_path / "for all").mkdir(mode=0o755)
    with pytest.raises(FileUnusable, match="snapshot must be a directory for this user alone") as refused:
        make(snapshot=tmp_path / name)
    assert str(tmp_path / name) in str(refused.value)


def test_a_first_level_takes_no_snapshot(place):
    app = flask.Flask("site")
    app.config.from_mapping(
        CACHE_TYPE="wheelcache.flask_backend.TieredCache", CACHE_OPTIONS={"snapshot": str(place), "l2": "SimpleCache"}
    )
    with pytest.raises((TypeError, ValueError), match="'snapshot'"):
        flask_caching.Cache(app)


def test_two_caches_of_an_app_that_would_load_each_other_s_entries_are_an_error(place):
    app = flask.Flask("site")

    def config(**options):
        return {"CACHE_TYPE": BACKEND, "CACHE_OPTIONS": {"snapshot": str(place), "figures_dir": None, **options}}

    flask_caching.Cache(app, config=config())
    flask_caching.Cache(app, config=config(name="other"))
    with pytest.raises(ValueError, match=r"name must be another one .* not 'site' for two"):
        flask_caching.Cache(app, config=config())


# The command.


@pytest.mark.parametrize("action", ["save", "load", "inspect"])
def test_without_a_snapshot_directory_the_command_names_the_option(action):
    done = restarts.run([*COMMAND, action])
    assert (done.returncode, done.stdout) == (1, "")
    assert "the option snapshot says where" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["--json", "save"], 1, "--json is for the figures and inspect"),
        (["--watch", "3", "inspect"], 1, "--watch is for the figures"),
        (["forget"], 2, "No such command 'forget'"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, code, complaint):
    done = restarts.run([*COMMAND, *arguments])
    assert done.returncode == code
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("action", ["save", "load", "inspect"])
def test_an_app_without_our_cache_is_told(action):
    done = restarts.run(["-m", "flask", "--app", "tests.flask_backend.watched_flask:without_any", "wheelcache", action])
    assert done.returncode == 1
    assert "The app 'bare' has no Flask-Caching cache" in done.stderr


def test_without_rich_all_works_but_the_table(tmp_path):
    (tmp_path / "snapshots").mkdir(mode=0o700)
    command = watched_site.without_rich([sys.executable, *COMMAND])[1:]
    done = restarts.run([*command, "inspect", "--json"], **environment(tmp_path))
    assert json.loads(done.stdout)["caches"][0]["snapshots"] == []
    done = restarts.run([*command, "inspect"], **environment(tmp_path))
    assert done.returncode == 1
    assert 'pip install "wheelcache[cli]"' in done.stderr
    done = restarts.run([*command, "save"], **environment(tmp_path))
    assert done.returncode == 1
    assert "No worker of this site publishes figures" in done.stderr


# Real servers.


@pytest.fixture
def serve(tmp_path):
    """Start a server: ``with serve(name, option=...) as server``. Always with the same directories."""

    def start(name, **options):
        command, workers = SERVERS[name]
        return restarts.served(command, tmp_path / "log", workers, **environment(tmp_path, **options))

    yield start
    assert "Traceback" not in (tmp_path / "log").read_text()


def environment(tmp_path, **options):
    directories = {"snapshot": str(tmp_path / "snapshots"), "figures_dir": str(tmp_path / "figures")}
    return {"SNAPSHOT_OPTIONS": json.dumps({**directories, **options})}


@pytest.mark.servers
@pytest.mark.parametrize("name", SERVERS)
def test_a_server_that_is_told_to_stop_starts_warm(serve, tmp_path, name):
    with serve(name) as server:
        server.fill()
        before = server("cached"), server("memoized/5")
        server.stop()
    assert len(list((tmp_path / "snapshots").glob("*.snapshot"))) == server.workers
    with serve(name) as server:
        assert server.hits() == 1
        if server.workers == 1:
            assert (server("cached"), server("memoized/5")) == before


@pytest.mark.servers
def test_an_app_whose_workers_are_killed_loses_no_more_than_an_interval(serve, tmp_path):
    def is_saved():
        found = restarts.inspected(COMMAND, **environment(tmp_path))
        return [each["entries"] for each in found] == 2 * [len(restarts.KEYS)]

    with serve("gunicorn sync", snapshot_interval=0.5) as server:
        server.fill()
        assert until(is_saved, 30)
        server.kill()
    with serve("gunicorn sync", snapshot_interval=0.5) as server:
        assert server.hits() == 1


@pytest.mark.servers
def test_the_command_has_the_workers_save_and_load_and_sees_what_is_there(serve, tmp_path):
    with serve("gunicorn gthread") as server:
        server.fill()
        restarts.wait_until_published(server, tmp_path / "figures")
        restarts.check_commands(server, COMMAND, tmp_path / "snapshots", **environment(tmp_path))


@pytest.mark.servers
def test_what_another_process_wrote_since_is_not_loaded(serve, tmp_path):
    with serve("waitress", coherence="host") as server:
        server.fill()
        server.stop()
    with serve("waitress", coherence="host", snapshot=str(tmp_path / "elsewhere")) as other:
        other("set/key3?value=newer")
        with serve("waitress", coherence="host") as server:
            found = {key: server(f"get/{key}")["value"] for key in restarts.KEYS}
    assert found == {key: None if key == "key3" else ["warm"] for key in restarts.KEYS}
