import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.waiting import PATIENCE, THREADS


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
