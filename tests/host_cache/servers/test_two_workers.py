"""Two workers of a real server with a HostCache: one computation of each page and value."""

import pytest

from tests.servers.process import running

GUNICORN = [
    *("-m", "gunicorn", "--workers=2", "--worker-class=gthread", "--threads=8", "--keep-alive=75"),
    *("--bind=127.0.0.1:{port}", "--log-level=warning"),
]
UVICORN = ["-m", "uvicorn", "--workers=2", "--timeout-keep-alive=75", "--port={port}", "--log-level=warning"]
SITE = "tests.host_cache.servers.{}_site:application"
SITES = {
    "django on gunicorn": [*GUNICORN, SITE.format("django")],
    "django on uvicorn": [*UVICORN, "--timeout-worker-healthcheck=60", SITE.format("django").replace(":", ":asgi_")],
    "flask on gunicorn, preloaded": [*GUNICORN, "--preload", SITE.format("flask")],
}
NAMES = "abcde"


@pytest.mark.parametrize("kind", SITES)
def test_each_computation_runs_once_for_both_workers_and_not_again_after_a_restart(kind, tmp_path):
    # In a process of pytest-xdist, each process of the site would have entries of its own.
    environment = {"HOST_FOLDER": str(tmp_path), "PYTEST_XDIST_WORKER": ""}
    runs, log = tmp_path / "runs", tmp_path / "log"
    for new in (len(NAMES), 0):
        with running(SITES[kind], log, is_up=lambda site: site.is_up("value/first"), **environment) as site:
            for way in ("page", "value"):
                before = runs.stat().st_size
                visits = [name for name in NAMES for _ in range(8)]
                answers = site.together(*(f"{way}/{name}" for name in visits))
                assert answers == [(200, {"name": name}) for name in visits]
                # Two callers may compute a page of ``cache_page``: see docs/how-to/stampedes.md. The port is a part of
                # its key, and differs from start to start.
                most = 2 * len(NAMES) if way == "page" and "django" in kind else new
                assert new <= runs.stat().st_size - before <= most
            site.stop()
    assert "Traceback" not in log.read_text()
