"""The deployment check of what all workers have to see: sessions, rate limits, failed logins."""

import os
import subprocess
import sys

import pytest
from django.conf import settings
from django.core import checks
from django.test import override_settings

pytestmark = pytest.mark.usefixtures("own_boards")

BACKEND = "wheelcache.django_backend.WheelCache"
TIERED = "wheelcache.django_backend.TieredCache"
CACHE = "django.contrib.sessions.backends.cache"
CACHED_DB = "django.contrib.sessions.backends.cached_db"

PLAIN = {"BACKEND": BACKEND, "LOCATION": "plain"}
COHERENT = {"BACKEND": BACKEND, "LOCATION": "coherent", "OPTIONS": {"COHERENCE": "host"}}
REDIS = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1"}
LOCMEM = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}


def tiered(l2):
    return {"BACKEND": TIERED, "LOCATION": f"over {l2}", "OPTIONS": {"L2": l2}}


CACHES = {
    "default": PLAIN,
    "coherent": COHERENT,
    "redis": REDIS,
    "locmem": LOCMEM,
    "over redis": tiered("redis"),
    "over locmem": tiered("locmem"),
    "over plain": tiered("default"),
}


def warnings_for(*, deploy=True, **configured):
    with override_settings(CACHES=CACHES, **configured):
        found = checks.run_checks(tags=[checks.Tags.caches], include_deployment_checks=deploy)
    return [each for each in found if each.id == "wheelcache.W005"]


@pytest.mark.parametrize(
    ("engine", "alias", "is_right"),
    [
        (CACHE, "default", False),
        # It tells that a session was changed, and there is no other place to read it from.
        (CACHE, "coherent", False),
        (CACHE, "over redis", True),
        (CACHE, "over locmem", False),
        (CACHE, "over plain", False),
        (CACHE, "redis", True),
        # Django's own: its users know, and it is none of ours.
        (CACHE, "locmem", True),
        (CACHED_DB, "default", False),
        (CACHED_DB, "coherent", True),
        (CACHED_DB, "over redis", True),
        (CACHED_DB, "over locmem", False),
        ("django.contrib.sessions.backends.db", "default", True),
        ("django.contrib.sessions.backends.signed_cookies", "default", True),
    ],
)
def test_sessions_in_a_cache_of_each_process_are_a_warning_that_names_it(engine, alias, is_right):
    found = warnings_for(SESSION_ENGINE=engine, SESSION_CACHE_ALIAS=alias)
    if is_right:
        assert found == []
    else:
        (warning,) = found
        assert warning.level == checks.WARNING
        assert f"the cache {alias!r}" in warning.msg
        assert "COHERENCE" in warning.hint
        assert "TieredCache" in warning.hint
        assert (CACHED_DB in warning.hint) == (engine == CACHE)


def test_an_alias_that_is_not_there_is_for_django_to_name():
    assert warnings_for(SESSION_ENGINE=CACHE, SESSION_CACHE_ALIAS="missing") == []


def test_it_is_a_check_of_deployments_only():
    assert warnings_for(deploy=False, SESSION_ENGINE=CACHE) == []


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """INSTALLED_APPS with an app of this name, which has nothing in it."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(name):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        return [*settings.INSTALLED_APPS, name]

    yield install
    for name in ("django_ratelimit", "ratelimit", "axes"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("alias", "is_right"),
    [("default", False), ("coherent", False), ("over redis", True), ("over locmem", False), ("redis", True)],
)
@pytest.mark.parametrize("app", ["django_ratelimit", "ratelimit", None])
def test_rate_limits_in_a_cache_of_each_process_are_a_warning(installed, app, alias, is_right):
    there = settings.INSTALLED_APPS if app is None else installed(app)
    found = warnings_for(RATELIMIT_USE_CACHE=alias, INSTALLED_APPS=there)
    assert len(found) == (not is_right)
    for each in found:
        assert f"django-ratelimit counts in the cache {alias!r}" in each.msg
        assert "RATELIMIT_USE_CACHE" in each.hint
        assert "COHERENCE" not in each.hint


def test_rate_limits_are_in_the_default_cache_unless_told_otherwise_and_nowhere_if_they_are_off(installed):
    there = installed("django_ratelimit")
    assert len(warnings_for(INSTALLED_APPS=there)) == 1
    assert warnings_for(INSTALLED_APPS=there, RATELIMIT_ENABLE=False) == []


@pytest.mark.parametrize(("alias", "is_right"), [("default", False), ("coherent", False), ("over redis", True)])
def test_failed_logins_in_a_cache_of_each_process_are_a_warning(installed, alias, is_right):
    handler = "axes.handlers.cache.AxesCacheHandler"
    found = warnings_for(AXES_HANDLER=handler, AXES_CACHE=alias, INSTALLED_APPS=installed("axes"))
    assert len(found) == (not is_right)
    for each in found:
        assert f"django-axes counts failed logins in the cache {alias!r}" in each.msg
        assert "AXES_CACHE" in each.hint


def test_axes_with_its_database_handler_or_not_installed_is_well(installed):
    assert warnings_for(AXES_HANDLER="axes.handlers.cache.AxesCacheHandler") == []
    assert warnings_for(INSTALLED_APPS=installed("axes")) == []


def test_manage_py_check_deploy_prints_it(tmp_path):
    site = f"""
from django.conf import settings
settings.configure(
    CACHES={{"default": {PLAIN!r}}},
    INSTALLED_APPS=["wheelcache.django_backend"],
    SESSION_ENGINE={CACHE!r},
)
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", "check", "--deploy"])
"""
    done = subprocess.run(
        [sys.executable, "-c", site], env=os.environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert "(wheelcache.W005) Sessions are only in the cache 'default'" in done.stderr


def test_a_count_of_two_processes_stays_below_what_they_counted_also_with_coherence(tmp_path):
    """Why COHERENCE is not enough for counters and locks: it drops what another process wrote, and shares no value."""
    code = """
import os, sys
from pathlib import Path
from wheelcache import Cache
from wheelcache.coherence.shared_stamps import Board

cache = Cache(log_interval=None, board=Board("shared", Path(sys.argv[1])))
assert cache.add("lock", 1)
cache.set("count", 10)
cache.transform("count", lambda count: count + 1)
pid = os.fork()
if pid == 0:
    other = Cache(log_interval=None, board=Board("shared", Path(sys.argv[1])))
    os._exit(2 * other.add("lock", 1) + other.add("count", 1))
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), cache.get("count"))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "3 None\n"
