"""Django's own cache tests, unchanged, on a first level in front of two kinds of cache, in processes of their own."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conformance.sources import source_of
from tests.redis_server import RedisServer

ROOT = Path(__file__).parents[2]

SECOND_LEVELS = [
    "django.core.cache.backends.redis.RedisCache",
    "django.core.cache.backends.locmem.LocMemCache",
]


@pytest.fixture(scope="module")
def outcomes():
    """Of both, which sleep most of their time, at once."""
    source = source_of("Django") / "tests"

    def run(number):
        url = f"redis://{server.host}:{server.port}/{number}"
        return subprocess.run(
            [sys.executable, "-m", "tests.conformance.django_tiered_suite", source, SECOND_LEVELS[number], url],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=110,
        )

    with RedisServer() as server, ThreadPoolExecutor(len(SECOND_LEVELS)) as pool:
        return dict(zip(SECOND_LEVELS, pool.map(run, range(len(SECOND_LEVELS))), strict=True))


@pytest.mark.parametrize("second_level", SECOND_LEVELS)
def test_djangos_cache_contract_holds_for_a_first_level_in_front_of(outcomes, second_level):
    outcome = outcomes[second_level]
    print(outcome.stdout, outcome.stderr)
    assert outcome.returncode == 0
    ran = re.search(r"Ran (\d+) tests", outcome.stderr)
    assert ran is not None
    # The contract has 54 tests, 3 of which are about culling.
    assert int(ran[1]) >= 50
