import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.waiting import PATIENCE, THREADS

# Processes that the tests start behave alike, whatever the environment of the caller: PYTHONUNBUFFERED, for one, hides
# that a script does not flush what it prints before it forks. pytest-django has added DJANGO_SETTINGS_MODULE and has
# read the settings by now; sites in other processes have their own.
for name in [*os.environ]:
    if name.startswith("PYTHON") or name == "DJANGO_SETTINGS_MODULE":
        del os.environ[name]

FOLDERS = {"browser", "conformance"}
"""Each of the same name as the marker of all its tests."""


def pytest_collection_modifyitems(items):
    for item in items:
        folder = Path(item.path).parent.name
        if folder in FOLDERS:
            item.add_marker(folder)


@pytest.fixture
def together():
    """Call a function in 32 threads that start as one; what each returned or raised."""

    def run(function):
        barrier = threading.Barrier(THREADS)

        def one(number):
            barrier.wait(PATIENCE)
            try:
                return function(number)
            except Exception as error:
                return error

        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(one, range(THREADS), timeout=60))

    return run


def pytest_unconfigure():
    # Caches that tests have left publish into folders that pytest removes at the exit. What they log then would follow
    # pytest's closing line.
    logging.disable()
