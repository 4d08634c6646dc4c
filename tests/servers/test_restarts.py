"""Sites with snapshots on real servers, and their entries after they were stopped or killed and started again."""

import pytest

from tests.servers.restarts import KEYS, Place
from tests.waiting import until
from wheelcache.persistence.snapshot_file import open_snapshot

SERVERS = [
    *(("django", server) for server in ("gunicorn sync", "gunicorn preload", "uvicorn", "uvicorn with workers")),
    ("django", "runserver"),
    *(("flask", server) for server in ("gunicorn gthread", "waitress in the app", "flask run")),
]


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.mark.parametrize(("framework", "server"), SERVERS, ids=map(" ".join, SERVERS))
def test_a_server_that_is_told_to_stop_starts_warm(place, framework, server):
    pages = ["page/one", *["memoized/one"] * (framework == "flask")]
    with place.serve(framework, server) as site:
        site.fill()
        before = [site(page) for page in pages]
        site.stop()
    assert len(list(place.snapshots.glob("*.snapshot"))) == site.workers
    with place.serve(framework, server) as site:
        assert site.hits() == 1
        if site.workers == 1:
            assert [site(page) for page in pages] == before
    assert not list(place.snapshots.glob("*.tmp"))


def test_a_site_whose_workers_are_killed_loses_no_more_than_an_interval(place):
    def saved():
        for path in place.snapshots.glob("*.snapshot"):
            with open_snapshot(path, "cache", None) as snapshot:
                yield snapshot.header["entries"]

    with place.serve("django", "gunicorn sync", snapshot_interval=0.5) as site:
        site.fill()
        assert until(lambda: list(saved()) == 2 * [len(KEYS)])
        site.kill()
    with place.serve("django", "gunicorn sync", snapshot_interval=0.5) as site:
        assert site.hits() == 1


def test_what_another_process_wrote_since_is_not_loaded(place, tmp_path):
    with place.serve("flask", "waitress", coherence="host") as site:
        site.fill()
        site.stop()
    with place.serve("flask", "waitress", coherence="host", snapshot=str(tmp_path / "elsewhere")) as other:
        other("set/key3?value=newer")
        other("delete/key4")
        with place.serve("flask", "waitress", coherence="host") as site:
            found = {key: site(f"get/{key}")["value"] for key in KEYS}
    assert found == {key: None if key in ("key3", "key4") else ["warm"] for key in KEYS}
