"""Two worker processes with the settings of README, which cache pages in all of Django's ways."""

import os
import random
import subprocess
import sys
from functools import partial

import pytest

from tests.scripts import ROOT

WAYS = ["cache_page in a transaction", "middleware under ASGI"]
WAYS += [pytest.param(way, marks=pytest.mark.deep) for way in ("cache_page", "middleware", "fragment")]
PAGES = 10


@pytest.fixture
def workers(request, tmp_path):
    """Two functions that visit a page in a worker, and return how often one of its views has run by then."""

    def visit(process, number):
        print(number, file=process.stdin, flush=True)
        return int(process.stdout.readline())

    command = [sys.executable, "-m", "tests.pages.on_django.readme_site", str(tmp_path), request.param]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    # As outside of tests in parallel: the workers share the entries.
    pipes["env"] = {**os.environ, "PYTEST_XDIST_WORKER": ""}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as one, subprocess.Popen(command, cwd=ROOT, **pipes) as other:
        yield partial(visit, one), partial(visit, other)


@pytest.mark.parametrize("workers", WAYS, indirect=True)
def test_two_workers_compute_each_page_once(workers):
    choose = random.Random(1)
    runs = {}
    for _ in range(300):
        worker = choose.choice(workers)
        runs[worker] = worker(choose.randrange(PAGES))
    # A worker makes its cache during its first request: the transaction of that shares nothing.
    assert PAGES <= sum(runs.values()) <= PAGES + 2
