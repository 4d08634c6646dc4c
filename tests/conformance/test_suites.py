"""The test suites of other projects, unchanged, each in a process of its own."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conformance.sources import source_of
from tests.redis_server import RedisServer

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
FLASK_CACHING = ["test_basic_app", "test_cache", "test_memoize", "test_view", "test_templates", "test_signals"]
OF_ITS_CACHE = [*FLASK_CACHING, "test_hash_method", "test_subclassing", "test_py314_annotations"]
OF_ITS_BACKENDS = ["test_cachelib", "test_serializer"]
SECOND_LEVELS = [
    "django.core.cache.backends.redis.RedisCache",
    "django.core.cache.backends.locmem.LocMemCache",
]


def run(command, cwd=ROOT, **variables):
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )


def number_of(pattern, outcome):
    """Return the number of tests that a suite reports, which must have passed."""
    text = outcome.stdout + outcome.stderr
    print(text)
    assert outcome.returncode == 0
    return int(re.search(pattern, text, re.MULTILINE)[1])


def test_djangos_own_cache_tests_pass_on_the_backend():
    outcome = run([sys.executable, "-m", "tests.conformance.django_suite", source_of("Django") / "tests"])
    # The contract alone has 54 tests; fewer than 250 in all would mean that a class was lost on the way.
    assert number_of(r"Ran (\d+) tests", outcome) >= 250


@pytest.fixture(scope="module")
def tiered():
    """Run both suites in parallel, since they sleep most of the time, and return their outcomes."""
    source = source_of("Django") / "tests"

    def run_over(number):
        url = f"redis://{server.host}:{server.port}/{number}"
        suite = "tests.conformance.django_suite"
        return run([sys.executable, "-m", suite, source, SECOND_LEVELS[number], url])

    with RedisServer() as server, ThreadPoolExecutor(len(SECOND_LEVELS)) as pool:
        return dict(zip(SECOND_LEVELS, pool.map(run_over, range(len(SECOND_LEVELS))), strict=True))


@pytest.mark.parametrize("second_level", SECOND_LEVELS)
def test_djangos_cache_contract_holds_for_a_first_level_in_front_of(tiered, second_level):
    # The contract has 54 tests, 3 of which are about culling.
    assert number_of(r"Ran (\d+) tests", tiered[second_level]) >= 50


# ``python -m`` makes the working directory importable, and the tests import each other by bare names.


def test_cachelibs_own_tests_pass_on_the_flask_backend():
    outcome = run([*PYTEST, HERE / "cachelib_suite.py"], source_of("cachelib") / "tests")
    # 26 for each kind of WheelCache, 21 for TieredCache; fewer than 66 would mean that a set was lost on the way.
    assert number_of(r"^(\d+) passed in", outcome) >= 66


def run_flask_caching(modules, **variables):
    plugin = ["-p", "tests.conformance.flask_caching_suite"]
    # By the name that its source distribution has.
    tests = source_of("Flask_Caching") / "tests"
    return run([*PYTEST, *plugin, *(f"{each}.py" for each in modules)], tests, **variables)


def test_flask_cachings_own_tests_pass_on_the_backend():
    outcome = run_flask_caching(FLASK_CACHING)
    # 131 and 125 of Flask-Caching 2.5.1; far fewer would mean that a module, or the backend, was lost on the way.
    assert number_of(r"(\d+) passed", outcome) >= 125
    assert number_of(r"^(\d+) tests used WheelCache$", outcome) >= 120


def test_flask_cachings_own_tests_pass_on_our_cache():
    outcome = run_flask_caching(OF_ITS_CACHE, OUR_CACHE="WheelCache")
    assert number_of(r"(\d+) passed", outcome) >= 145
    assert number_of(r"^(\d+) tests used WheelCache$", outcome) >= 135
    assert "wheelcache.flask_backend.caching was tested" in outcome.stdout


def test_flask_cachings_own_tests_pass_on_our_cache_with_one_of_its_own_backends():
    outcome = run_flask_caching([*OF_ITS_CACHE, *OF_ITS_BACKENDS], OUR_CACHE="SimpleCache")
    assert number_of(r"(\d+) passed", outcome) >= 160
    assert number_of(r"^(\d+) tests used WheelCache$", outcome) == 0
    assert "wheelcache.flask_backend.caching was tested" in outcome.stdout


def test_django_rediss_own_tests_of_its_cache_pass_on_the_backend():
    plugin = ["-o", "addopts=", "-p", "django_redis_suite"]
    modules = ["tests/test_backend.py", "tests/test_cache_options.py"]
    outcome = run([*PYTEST, *plugin, *modules], source_of("django_redis"), PYTHONPATH=str(HERE))
    # 57 of the calls, and 3 of key prefixes; fewer would mean that one was lost on the way.
    assert number_of(r"(\d+) passed", outcome) >= 60
