"""The entries of a site's caches survive its processes: SNAPSHOT and what sees to it."""

import asyncio
import json
import os
import signal
from functools import partial
from io import StringIO

import pytest
from django.core import checks
from django.core.cache import cache as default_cache
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.http import HttpResponse
from django.test import RequestFactory, override_settings
from django.views.decorators.cache import cache_page

from tests import restarts
from tests.django_backend.conftest import BACKEND
from tests.engines import engine
from tests.waiting import until
from wheelcache import Cache
from wheelcache.django_backend import stores
from wheelcache.observability import snapshot_commands

SITE = "tests.django_backend.tiny_site"
MANAGE = ["-m", SITE]
GUNICORN = ["-m", "gunicorn", "--workers=2", "--bind=127.0.0.1:{port}"]
SERVERS = {
    "gunicorn sync": ([*GUNICORN, f"{SITE}:application"], 2),
    "gunicorn gthread": ([*GUNICORN, "--threads=4", f"{SITE}:application"], 2),
    "uvicorn": (["-m", "uvicorn", "--port={port}", f"{SITE}:asgi_application"], 1),
    "uvicorn with workers": (["-m", "uvicorn", "--workers=2", "--port={port}", f"{SITE}:asgi_application"], 2),
    "waitress": (["-m", "waitress", "--listen=127.0.0.1:{port}", f"{SITE}:application"], 1),
    "runserver": ([*MANAGE, "runserver", "--noreload", "{port}"], 1),
}


@pytest.fixture
def forget():
    """Have this process forget all stores, as if it had been restarted. They are saved, as at an exit."""
    kept = dict(stores._stores), dict(stores._looked_up)
    stores._stores.clear()
    stores._looked_up.clear()

    def restart():
        for store in stores._stores.values():
            engine = store.cache
            if engine.keeper is not None:
                if engine.is_in_use():
                    assert engine.keeper.save()
                engine.close()
        stores._stores.clear()
        stores._looked_up.clear()

    # Those of other tests are not to be closed here.
    stores._stores.clear()
    stores._looked_up.clear()
    yield restart
    restart()
    stores._stores.update(kept[0])
    stores._looked_up.update(kept[1])


@pytest.fixture
def place(tmp_path):
    return tmp_path / "snapshots"


@pytest.fixture
def kept(make, place, forget):
    """Make a backend whose entries are kept, always the same one."""
    return partial(make, {"SNAPSHOT": str(place)}, location="kept")


VALUES = {"list": [1, {"a": (2, 3)}], "text": "text", "number": 7, "none": None, "bytes": b"\0"}

USES = {
    "get": lambda cache: cache.get("list"),
    "get_many": lambda cache: cache.get_many(["list"])["list"],
    "get_or_set": lambda cache: cache.get_or_set("list", lambda: pytest.fail("it was there")),
    "aget": lambda cache: asyncio.run(cache.aget("list")),
    "aget_or_set": lambda cache: asyncio.run(cache.aget_or_set("list", lambda: pytest.fail("it was there"))),
    "set": lambda cache: cache.set("other", 1) or cache.get("list"),
    "aset": lambda cache: asyncio.run(cache.aset("other", 1)) or cache.get("list"),
    "add": lambda cache: "added" if cache.add("list", "another") else cache.get("list"),
    "has_key": lambda cache: "list" in cache and cache.get("list"),
    "touch": lambda cache: cache.touch("list", 60) and cache.get("list"),
    "incr": lambda cache: cache.incr("number") == 8 and cache.get("list"),
    "delete": lambda cache: cache.delete("text") and cache.get("list"),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_whatever_uses_the_cache_first_finds_what_was_there_before(kept, forget, use):
    kept().set_many(VALUES)
    forget()
    cache = kept()
    assert not engine(cache).is_in_use()
    assert use(cache) == VALUES["list"]
    assert engine(cache).is_in_use()


def test_every_value_comes_back_as_it_was_and_isolated(kept, forget):
    kept().set_many(VALUES)
    forget()
    cache = kept()
    assert cache.get_many(VALUES) == VALUES
    cache.get("list").append("mine")
    assert cache.get("list") == VALUES["list"]


def test_the_time_in_between_counts_and_timeouts_go_on(kept, forget):
    cache = kept()
    cache.set("soon", 1, 0.2)
    cache.set("late", 1, 3600)
    cache.set("never", 1, None)
    forget()
    cache = kept()
    assert until(lambda: cache.get("soon") is None)
    assert 3590 < engine(cache).expires_in(":1:late") <= 3600
    assert engine(cache).expires_in(":1:never") is None


def test_prefixes_and_versions_stay_apart(make, place, forget):
    def backend(**params):
        return make({"SNAPSHOT": str(place)}, location="kept", **params)

    backend(KEY_PREFIX="one").set("key", "of one")
    backend(KEY_PREFIX="two").set("key", "of two")
    backend(KEY_PREFIX="one").set("key", "version 2", version=2)
    forget()
    assert backend(KEY_PREFIX="one").get("key") == "of one"
    assert backend(KEY_PREFIX="two").get("key") == "of two"
    assert backend(KEY_PREFIX="one").get("key", version=2) == "version 2"
    assert backend(KEY_PREFIX="three").get("key") is None


def test_caches_of_other_locations_have_snapshots_of_their_own_in_the_same_directory(make, place, forget):
    def backend(location):
        return make({"SNAPSHOT": str(place)}, location=location)

    backend("a/b").set("key", 1)
    backend("a_b").set("key", 2)
    forget()
    assert [backend(location).get("key") for location in ("a/b", "a_b", "c")] == [1, 2, None]


@pytest.mark.parametrize(
    "options",
    [
        {"SERIALIZER": "reference"},
        {"SERIALIZER": "tests.django_backend.serializers.Json"},
        {"MAX_BYTES": 100_000},
        {"SNAPSHOT_KEY": "secret"},
        {"SNAPSHOT_KEY": b"\0secret"},
        {"COHERENCE": "host"},
    ],
    ids=str,
)
def test_it_goes_with_every_other_option(make, place, forget, options):
    options = {"SNAPSHOT": str(place), **options}
    make(options, location="with options").set("key", ["value"])
    forget()
    assert make(options, location="with options").get("key") == ["value"]


def test_what_was_signed_with_another_key_is_set_aside_with_one_warning(make, place, forget, caplog):
    make({"SNAPSHOT": str(place), "SNAPSHOT_KEY": "one"}, location="kept").set("key", 1)
    forget()
    assert make({"SNAPSHOT": str(place), "SNAPSHOT_KEY": "two"}, location="kept").get("key") is None
    assert len(list(place.glob("*.refused"))) == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "signed with another secret" in caplog.text


def test_a_page_that_was_cached_is_not_computed_again(make, place, forget):
    computed = []

    @cache_page(60)
    def page(request):
        computed.append(request)
        return HttpResponse(f"{len(computed)}")

    for _ in range(2):
        with override_settings(CACHES={"default": {"BACKEND": BACKEND, "OPTIONS": {"SNAPSHOT": place}}}):
            assert page(RequestFactory().get("/")).content == b"1"
            forget()
    assert len(computed) == 1


def test_two_aliases_of_one_store_load_once_and_have_one_file(place, forget, caplog):
    caplog.set_level("INFO", "wheelcache")
    alias = {"BACKEND": BACKEND, "LOCATION": "shared", "OPTIONS": {"SNAPSHOT": place}}
    with override_settings(CACHES={"default": alias, "other": {**alias, "KEY_PREFIX": "other"}}):
        caches["default"].set("key", 1)
        caches["other"].set("key", 2)
        forget()
        with override_settings(CACHES={"default": alias, "other": {**alias, "KEY_PREFIX": "other"}}):
            assert (caches["default"].get("key"), caches["other"].get("key")) == (1, 2)
        assert len(list(place.glob("*.snapshot"))) == 1
    assert caplog.text.count("Loaded 2 entries") == 1


def test_overridden_settings_have_a_store_of_their_own(make, tmp_path, forget):
    def settings(name):
        return {"default": {"BACKEND": BACKEND, "OPTIONS": {"SNAPSHOT": tmp_path / name}}}

    with override_settings(CACHES=settings("a")):
        default_cache.set("key", "of a")
    with override_settings(CACHES=settings("b")):
        assert default_cache.get("key") is None
    forget()
    with override_settings(CACHES=settings("a")):
        assert default_cache.get("key") == "of a"


@pytest.mark.parametrize(
    "command", [["check", "--tag=caches"], ["wheelcache"], ["wheelcache", "inspect"]], ids=" ".join
)
def test_commands_that_do_not_use_the_cache_neither_load_nor_write(place, forget, command):
    settings = {"default": {"BACKEND": BACKEND, "OPTIONS": {"SNAPSHOT": place, "FIGURES_DIR": None}}}
    with override_settings(CACHES=settings):
        caches["default"].set("key", 1)
        forget()
        before = {path: path.stat().st_mtime_ns for path in place.iterdir()}
    with override_settings(CACHES=settings):
        call_command(*command, stdout=StringIO())
        assert not engine(caches["default"]).is_in_use()
    assert {path: path.stat().st_mtime_ns for path in place.iterdir()} == before


# The options.


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"SNAPSHOT": "relative/path"}, "SNAPSHOT must be an absolute path, or None, not 'relative/path'"),
        ({"SNAPSHOT": True}, "SNAPSHOT must be an absolute path, or None, not True"),
        ({"SNAPSHOT_INTERVAL": 0}, "SNAPSHOT_INTERVAL must be a number of seconds > 0, at least 0.000001, not 0"),
        (
            {"SNAPSHOT_INTERVAL": "300"},
            "SNAPSHOT_INTERVAL must be a number of seconds > 0, at least 0.000001, not '300'",
        ),
        ({"SNAPSHOT_KEY": ""}, "SNAPSHOT_KEY must be a string or bytes, not empty, or None"),
        ({"SNAPSHOT_KEY": 54321}, "SNAPSHOT_KEY must be a string or bytes, not empty, or None"),
    ],
)
def test_a_wrong_option_is_named_with_what_it_takes(make, options, complaint):
    with pytest.raises(ImproperlyConfigured) as refused:
        make(options)
    assert complaint in str(refused.value)
    assert "54321" not in str(refused.value)


@pytest.mark.parametrize("name", ["no/parent", "a file", "for all"])
def test_a_directory_that_cannot_be_used_is_an_error_that_names_the_option_and_says_why(make, tmp_path, name):
    (tmp_path / "a file").touch()
    (tmp_path / "for all").mkdir(mode=0o755)
    with pytest.raises(ImproperlyConfigured, match="SNAPSHOT must be a directory for this user alone") as refused:
        make({"SNAPSHOT": tmp_path / name})
    assert str(tmp_path / name) in str(refused.value)


def test_a_first_level_takes_no_snapshot(place):
    tiered = {"BACKEND": "wheelcache.django_backend.TieredCache", "OPTIONS": {"L2": "default", "SNAPSHOT": str(place)}}
    with (
        override_settings(CACHES={"default": {"BACKEND": BACKEND}, "tiered": tiered}),
        pytest.raises(ImproperlyConfigured, match="unknown option 'SNAPSHOT' of the cache 'tiered'"),
    ):
        caches["tiered"]


@pytest.mark.parametrize(("other", "errors"), [({"MAX_ENTRIES": 5}, 1), ({}, 0)])
def test_two_caches_that_would_load_each_other_s_entries_are_an_error_of_the_checks(place, forget, other, errors):
    alias = {"BACKEND": BACKEND, "LOCATION": "same", "OPTIONS": {"SNAPSHOT": place}}
    with override_settings(CACHES={"default": alias, "other": {**alias, "OPTIONS": {"SNAPSHOT": place, **other}}}):
        found = [each for each in checks.run_checks(tags=["caches"]) if each.id == "wheelcache.E001"]
    assert len(found) == errors
    assert all(each.is_serious() and "'default' and 'other'" in each.msg for each in found)


# The command.


@pytest.mark.parametrize("action", ["save", "load", "inspect"])
def test_without_a_snapshot_directory_the_command_names_the_option(action):
    with pytest.raises(CommandError, match="the option SNAPSHOT says where"):
        call_command("wheelcache", action)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["save", "--json"], "--json is for the figures and inspect"),
        (["inspect", "--watch"], "--watch is for the figures"),
        (["forget"], "invalid choice: 'forget'"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, complaint):
    with pytest.raises(CommandError, match=complaint):
        call_command("wheelcache", *arguments)


def test_without_workers_nobody_can_be_asked(place, tmp_path, forget):
    options = {"SNAPSHOT": place, "FIGURES_DIR": tmp_path / "figures"}
    with override_settings(CACHES={"default": {"BACKEND": BACKEND, "OPTIONS": options}}):
        with pytest.raises(CommandError, match="There is no snapshot to load"):
            call_command("wheelcache", "load")
        with pytest.raises(CommandError, match="No worker of this site publishes figures"):
            call_command("wheelcache", "save")
    options["FIGURES_DIR"] = None
    with (
        override_settings(CACHES={"default": {"BACKEND": BACKEND, "OPTIONS": options}}),
        pytest.raises(CommandError, match="are not published, and that is how workers are asked"),
    ):
        call_command("wheelcache", "save")


def test_inspect_tells_whole_damaged_foreign_and_set_aside_ones_apart(kept, place, forget):
    kept().set_many(VALUES)
    forget()
    [whole] = place.glob("*.snapshot")
    stem = whole.name.removesuffix(".1.snapshot")
    for number, how in ((2, "damaged"), (3, "foreign"), (4, "open")):
        (place / f"{stem}.{number}.snapshot").write_bytes(b"?" if how == "foreign" else whole.read_bytes())
        (place / f"{stem}.{number}.snapshot").chmod(0o622 if how == "open" else 0o600)
    restarts.damage(place / f"{stem}.2.snapshot")
    (place / f"{stem}.3.snapshot").rename(place / f"{stem}.3.snapshot.refused")
    out = StringIO()
    settings = {"default": {"BACKEND": BACKEND, "LOCATION": "kept", "OPTIONS": {"SNAPSHOT": place}}}
    with override_settings(CACHES=settings):
        call_command("wheelcache", "--json", "inspect", stdout=out)
        [cache] = json.loads(out.getvalue())["caches"]
        table = StringIO()
        call_command("wheelcache", "inspect", stdout=table)
    found = {os.path.basename(each["file"]): each for each in cache["snapshots"]}
    states = {name: (each["state"], each["entries"], each["set_aside"]) for name, each in found.items()}
    assert states == {
        f"{stem}.1.snapshot": ("whole", len(VALUES), False),
        f"{stem}.2.snapshot": ("damaged", len(VALUES) - 1, False),
        f"{stem}.4.snapshot": ("refused", None, False),
        f"{stem}.3.snapshot.refused": ("refused", None, True),
    }
    assert "must be for its owner only to write" in found[f"{stem}.4.snapshot"]["reason"]
    assert f"damaged: it is damaged after {len(VALUES) - 1} good records" in table.getvalue()
    assert "set aside, refused: it is no snapshot of wheelcache" in table.getvalue()
    assert "…" not in table.getvalue()


# Real servers.


@pytest.fixture
def serve(tmp_path):
    """Start a server: ``with serve(name, OPTION=...) as server``. Always with the same directories."""

    def start(name, **options):
        command, workers = SERVERS[name]
        return restarts.served(command, tmp_path / "log", workers, **environment(tmp_path, **options))

    yield start
    assert "Traceback" not in (tmp_path / "log").read_text()


def environment(tmp_path, **options):
    directories = {"SNAPSHOT": str(tmp_path / "snapshots"), "FIGURES_DIR": str(tmp_path / "figures")}
    return {"TINY_OPTIONS": json.dumps({"LOG_INTERVAL": None, **directories, **options})}


@pytest.mark.servers
@pytest.mark.parametrize("name", SERVERS)
def test_a_server_that_is_told_to_stop_starts_warm(serve, tmp_path, name):
    with serve(name) as server:
        server.fill()
        page = server("page")
        server.stop()
    assert len(list((tmp_path / "snapshots").glob("*.snapshot"))) == server.workers
    with serve(name) as server:
        assert server.hits() == 1
        if server.workers == 1:
            assert server("page") == page
    assert not list((tmp_path / "snapshots").glob("*.tmp"))


@pytest.mark.servers
def test_without_a_snapshot_it_starts_cold(serve):
    for expected in (1, 0):
        with serve("gunicorn gthread", SNAPSHOT=None) as server:
            if expected:
                server.fill()
            assert server.hits() == expected
            server.stop()


@pytest.mark.servers
def test_a_site_whose_workers_are_killed_loses_no_more_than_an_interval(serve, tmp_path):
    def is_saved():
        return len(restarts.inspected([*MANAGE, "wheelcache"], **environment(tmp_path))) == 2 and all(
            each["entries"] == len(restarts.KEYS)
            for each in restarts.inspected([*MANAGE, "wheelcache"], **environment(tmp_path))
        )

    with serve("gunicorn sync", SNAPSHOT_INTERVAL=0.5) as server:
        server.fill()
        assert until(is_saved, 30)
        server.kill()
    with serve("gunicorn sync", SNAPSHOT_INTERVAL=0.5) as server:
        assert server.hits() == 1


@pytest.mark.servers
def test_a_worker_that_is_replaced_starts_from_what_the_others_or_it_saved(serve):
    with serve("gunicorn sync") as server:
        server.fill()
        pids = server.pids()
        os.kill(min(pids), signal.SIGTERM)
        assert until(lambda: len(new := server.pids()) == 2 and new != pids, 30)
        assert server.hits() == 1


@pytest.mark.servers
def test_the_command_has_the_workers_save_and_load_and_sees_what_is_there(serve, tmp_path):
    with serve("gunicorn gthread") as server:
        server.fill()
        restarts.wait_until_published(server, tmp_path / "figures")
        restarts.check_commands(server, [*MANAGE, "wheelcache"], tmp_path / "snapshots", **environment(tmp_path))


@pytest.mark.servers
def test_load_brings_back_what_was_deleted(serve, tmp_path):
    with serve("waitress") as server:
        server.fill()
        restarts.wait_until_published(server, tmp_path / "figures")
        assert restarts.run([*MANAGE, "wheelcache", "save"], **environment(tmp_path)).returncode == 0
        server("delete/key1")
        server("set/key2?value=newer")
        assert restarts.run([*MANAGE, "wheelcache", "load"], **environment(tmp_path)).returncode == 0
        assert until(lambda: server("get/key1")["value"] == ["warm"])
        assert server("get/key2")["value"] == ["newer"]


@pytest.mark.servers
def test_save_names_the_workers_that_do_not_come(serve, tmp_path):
    with serve("gunicorn sync") as server:
        server.fill()
        restarts.wait_until_published(server, tmp_path / "figures")
        cache = Cache("default", figures_dir=tmp_path / "figures", snapshot_dir=tmp_path / "snapshots")
        stopped = min(server.pids())
        os.kill(stopped, signal.SIGSTOP)
        try:
            with pytest.raises(snapshot_commands.Undone, match="Of the 2 workers of the cache 'default'") as undone:
                snapshot_commands.save([cache], "SNAPSHOT", out := StringIO(), patience=8)
        finally:
            os.kill(stopped, signal.SIGCONT)
        assert str(stopped) in str(undone.value)
        assert "1 saved it within 8 seconds" in str(undone.value)
        assert out.getvalue().count(" entries in ") == 1
        assert not cache.is_in_use()
        cache.close()


@pytest.mark.servers
def test_what_another_process_wrote_since_is_not_loaded(serve, tmp_path):
    with serve("waitress", COHERENCE="host") as server:
        server.fill()
        server.stop()
    with serve("waitress", COHERENCE="host", SNAPSHOT=str(tmp_path / "elsewhere")) as other:
        other("set/key3?value=newer")
        other("delete/key4")
        with serve("waitress", COHERENCE="host") as server:
            found = {key: server(f"get/{key}")["value"] for key in restarts.KEYS}
    assert found == {key: None if key in ("key3", "key4") else ["warm"] for key in restarts.KEYS}
