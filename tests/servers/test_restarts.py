"""Sites with snapshots on real servers: what they start with after they were stopped or killed, and the command."""

import os
import signal
from io import StringIO

import pytest

from tests.servers import restarts
from tests.servers.process import pausing
from tests.servers.sites import MANAGE, command_of, environment, run, workers_of
from tests.waiting import until
from wheelcache import Cache
from wheelcache.observability import snapshot_commands

SERVERS = [
    *(("django", server) for server in ("gunicorn sync", "gunicorn preload", "uvicorn", "uvicorn with workers")),
    *(("django", server) for server in ("waitress", "runserver")),
    *(("flask", server) for server in ("gunicorn gthread", "waitress in the app", "flask run")),
]
BOTH = pytest.mark.parametrize("framework", MANAGE)


@pytest.fixture
def given(tmp_path):
    """The environment of a site and its command, always with the same directories."""

    def given(**options):
        directories = {"snapshot": str(tmp_path / "snapshots"), "figures_dir": str(tmp_path / "figures")}
        return {"SITE_BOARDS": str(tmp_path), **environment(log_interval=None, **{**directories, **options})}

    return given


@pytest.fixture
def serve(tmp_path, given):
    """Start a server: ``with serve(framework, server, option=...) as site``."""

    def start(framework, server, **options):
        return restarts.served(command_of(framework, server), tmp_path / "log", workers_of(server), **given(**options))

    yield start
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize(("framework", "server"), SERVERS, ids=map(" ".join, SERVERS))
def test_a_server_that_is_told_to_stop_starts_warm(serve, tmp_path, framework, server):
    pages = ["page/one", *["memoized/one"] * (framework == "flask")]
    with serve(framework, server) as site:
        site.fill()
        before = [site(page) for page in pages]
        site.stop()
    assert len(list((tmp_path / "snapshots").glob("*.snapshot"))) == site.workers
    with serve(framework, server) as site:
        assert site.hits() == 1
        if site.workers == 1:
            assert [site(page) for page in pages] == before
    assert not list((tmp_path / "snapshots").glob("*.tmp"))


def test_a_site_whose_workers_are_killed_loses_no_more_than_an_interval(serve, given):
    def is_saved():
        found = restarts.inspected(MANAGE["django"], **given())
        return [each["entries"] for each in found] == 2 * [len(restarts.KEYS)]

    with serve("django", "gunicorn sync", snapshot_interval=0.5) as site:
        site.fill()
        assert until(is_saved, 30)
        site.kill()
    with serve("django", "gunicorn sync", snapshot_interval=0.5) as site:
        assert site.hits() == 1


def test_a_worker_that_is_replaced_starts_from_what_the_others_or_it_saved(serve):
    with serve("django", "gunicorn sync") as site:
        site.fill()
        pids = site.pids()
        os.kill(min(pids), signal.SIGTERM)
        assert until(lambda: len(new := site.pids()) == 2 and new != pids, 30)
        assert site.hits() == 1


@BOTH
def test_the_command_has_the_workers_save_and_load_and_sees_what_is_there(serve, given, tmp_path, framework):
    with serve(framework, "gunicorn gthread") as site:
        site.fill()
        restarts.wait_until_published(site, tmp_path / "figures")
        restarts.check_commands(site, MANAGE[framework], tmp_path / "snapshots", **given())


def test_load_brings_back_what_was_deleted(serve, given, tmp_path):
    with serve("django", "waitress") as site:
        site.fill()
        restarts.wait_until_published(site, tmp_path / "figures")
        assert run([*MANAGE["django"], "save"], **given()).returncode == 0
        site("delete/key1")
        site("set/key2?value=newer")
        assert run([*MANAGE["django"], "load"], **given()).returncode == 0
        assert until(lambda: site("get/key1")["value"] == ["warm"])
        assert site("get/key2")["value"] == ["newer"]


def test_save_names_the_workers_that_do_not_come(serve, tmp_path):
    with serve("django", "gunicorn sync") as site:
        site.fill()
        restarts.wait_until_published(site, tmp_path / "figures")
        cache = Cache("site", figures_dir=tmp_path / "figures", snapshot_dir=tmp_path / "snapshots")
        stopped = min(site.pids())
        with (
            pausing(stopped),
            pytest.raises(snapshot_commands.Undone, match="Of the 2 workers of the cache 'site'") as undone,
        ):
            snapshot_commands.save([cache], "SNAPSHOT", out := StringIO(), patience=8)
        assert str(stopped) in str(undone.value)
        assert "1 saved it within 8 seconds" in str(undone.value)
        assert out.getvalue().count(" entries in ") == 1
        assert not cache.is_in_use()
        cache.close()


def test_what_another_process_wrote_since_is_not_loaded(serve, tmp_path):
    with serve("flask", "waitress", coherence="host") as site:
        site.fill()
        site.stop()
    with serve("flask", "waitress", coherence="host", snapshot=str(tmp_path / "elsewhere")) as other:
        other("set/key3?value=newer")
        other("delete/key4")
        with serve("flask", "waitress", coherence="host") as site:
            found = {key: site(f"get/{key}")["value"] for key in restarts.KEYS}
    assert found == {key: None if key in ("key3", "key4") else ["warm"] for key in restarts.KEYS}
