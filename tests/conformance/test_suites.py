"""The test suites of other projects, unchanged, each in a process of its own.

They sleep most of the time, so they run in parallel.
"""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.conformance.sources import source_of
from tests.redis_cluster import Cluster
from tests.redis_server import RedisServer
from tests.scripts import ROOT, run_python

# The first test waits for all of them, on a busy machine.
pytestmark = pytest.mark.timeout(600)

HERE = Path(__file__).parent
PYTEST = ["-m", "pytest", "-p", "no:cacheprovider"]
FLASK_CACHING = ["test_basic_app", "test_cache", "test_memoize", "test_view", "test_templates", "test_signals"]
OF_ITS_CACHE = [*FLASK_CACHING, "test_hash_method", "test_subclassing", "test_py314_annotations"]
OF_ITS_BACKENDS = ["test_cachelib", "test_serializer"]
SECOND_LEVELS = [
    "django.core.cache.backends.redis.RedisCache",
    "django.core.cache.backends.locmem.LocMemCache",
    "wheelcache.django_backend.RedisClusterCache",
]


def run(*command, cwd=ROOT, **variables):
    return run_python(*command, cwd=cwd, env={"PYTHONPATH": str(ROOT), **variables}, timeout=500)


def number_of(pattern, outcome):
    """Return the number of tests that a suite reports, which must have passed."""
    text = outcome.stdout + outcome.stderr
    print(text)
    assert outcome.returncode == 0
    return int(re.search(pattern, text, re.MULTILINE)[1])


# ``python -m`` makes the working directory importable, and the tests import each other by bare names.


def run_django(*given):
    return run("-m", "tests.conformance.django_suite", source_of("Django") / "tests", *given)


def run_tiered(second_level):
    with Cluster() if second_level.endswith("RedisClusterCache") else RedisServer() as server:
        return run_django(second_level, server.url)


def run_cachelib():
    return run(*PYTEST, HERE / "cachelib_suite.py", cwd=source_of("cachelib") / "tests")


def run_flask_caching(modules, **variables):
    plugin = ["-p", "tests.conformance.flask_caching_suite"]
    # By the name that its source distribution has.
    tests = source_of("Flask_Caching") / "tests"
    return run(*PYTEST, *plugin, *(f"{each}.py" for each in modules), cwd=tests, **variables)


def run_django_redis(backend):
    plugin = ["-o", "addopts=", "-p", "django_redis_suite", "tests/test_backend.py", "tests/test_cache_options.py"]
    path = {"PYTHONPATH": f"{HERE}{os.pathsep}{ROOT}"}
    return run(*PYTEST, *plugin, cwd=source_of("django_redis"), OUR_BACKEND=backend, **path)


SUITES = {
    # The ones that sleep for longest are first.
    "Django": partial(run_django, "wheelcache.django_backend.WheelCache"),
    "Django on HostCache": partial(run_django, "wheelcache.django_backend.HostCache"),
    **{second_level: partial(run_tiered, second_level) for second_level in SECOND_LEVELS},
    "cachelib": run_cachelib,
    "Flask-Caching": partial(run_flask_caching, FLASK_CACHING),
    "Flask-Caching, our cache": partial(run_flask_caching, OF_ITS_CACHE, OUR_CACHE="WheelCache"),
    "Flask-Caching, our cache, its backend": partial(
        run_flask_caching, [*OF_ITS_CACHE, *OF_ITS_BACKENDS], OUR_CACHE="SimpleCache"
    ),
    "Flask-Caching on HostCache": partial(run_flask_caching, FLASK_CACHING, OUR_BACKEND="HostCache"),
    "Flask-Caching, our cache, on HostCache": partial(
        run_flask_caching, OF_ITS_CACHE, OUR_CACHE="HostCache", OUR_BACKEND="HostCache"
    ),
    "django-redis": partial(run_django_redis, "WheelCache"),
    "django-redis on HostCache": partial(run_django_redis, "HostCache"),
}


@pytest.fixture(scope="module")
def outcome_of():
    """Return the outcome of a suite. The first call begins all, of which four run at a time: two cores suffice."""
    with ThreadPoolExecutor(4) as pool:
        outcomes = {name: pool.submit(suite) for name, suite in SUITES.items()}
        yield lambda name: outcomes[name].result()


ON_HOST = ["", " on HostCache"]


@pytest.mark.parametrize("host", ON_HOST)
def test_djangos_own_cache_tests_pass_on_the_backend(outcome_of, host):
    # The contract alone has 54 tests; fewer than 250 in all would mean that a class was lost on the way.
    assert number_of(r"Ran (\d+) tests", outcome_of(f"Django{host}")) >= 250


@pytest.mark.parametrize("second_level", SECOND_LEVELS)
def test_djangos_cache_contract_holds_for_a_first_level_in_front_of(outcome_of, second_level):
    # The contract has 54 tests, 3 of which are about culling.
    assert number_of(r"Ran (\d+) tests", outcome_of(second_level)) >= 50


def test_cachelibs_own_tests_pass_on_the_flask_backend(outcome_of):
    # 26 for each kind of WheelCache and for HostCache, 21 for TieredCache; fewer than 92 would mean that a set was lost
    # on the way.
    assert number_of(r"^(\d+) passed in", outcome_of("cachelib")) >= 92


@pytest.mark.parametrize("host", ON_HOST)
def test_flask_cachings_own_tests_pass_on_the_backend(outcome_of, host):
    outcome = outcome_of(f"Flask-Caching{host}")
    # 131 and 125 of Flask-Caching 2.5.1; far fewer would mean that a module, or the backend, was lost on the way.
    assert number_of(r"(\d+) passed", outcome) >= 125
    assert number_of(rf"^(\d+) tests used {'HostCache' if host else 'WheelCache'}$", outcome) >= 120


@pytest.mark.parametrize("host", ON_HOST)
def test_flask_cachings_own_tests_pass_on_our_cache(outcome_of, host):
    outcome = outcome_of(f"Flask-Caching, our cache{host and ','}{host}")
    assert number_of(r"(\d+) passed", outcome) >= 145
    assert number_of(rf"^(\d+) tests used {'HostCache' if host else 'WheelCache'}$", outcome) >= 135
    assert "wheelcache.flask_backend.caching was tested" in outcome.stdout


def test_flask_cachings_own_tests_pass_on_our_cache_with_one_of_its_own_backends(outcome_of):
    outcome = outcome_of("Flask-Caching, our cache, its backend")
    assert number_of(r"(\d+) passed", outcome) >= 160
    assert number_of(r"^(\d+) tests used WheelCache$", outcome) == 0
    assert "wheelcache.flask_backend.caching was tested" in outcome.stdout


@pytest.mark.parametrize("host", ON_HOST)
def test_django_rediss_own_tests_of_its_cache_pass_on_the_backend(outcome_of, host):
    # 57 of the calls, and 3 of key prefixes; fewer would mean that one was lost on the way.
    assert number_of(r"(\d+) passed", outcome_of(f"django-redis{host}")) >= 60
