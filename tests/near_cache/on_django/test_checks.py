"""Django's system checks of caches in front of a store."""

import pytest

from tests.django_backend.configured import LOCMEM, REDIS, alias, assert_warns_beside_options, tiered, warnings_for
from wheelcache.near_cache.options import DJANGO_TIERED


@pytest.mark.parametrize(
    "configured",
    [
        {"default": LOCMEM, "redis": REDIS, "front": tiered()},
        {"default": LOCMEM, "redis": {**REDIS, "BACKEND": "django_redis.cache.RedisCache"}, "front": tiered()},
        # Their entries are behind.
        {"default": alias(), "redis": REDIS, "front": tiered(""), "other": tiered("", L1_TIMEOUT=5)},
    ],
)
def test_there_is_no_warning_when_all_is_well(configured):
    assert warnings_for(**configured) == []


@pytest.mark.parametrize("option", DJANGO_TIERED)
def test_an_option_beside_options_is_a_warning_that_names_it_and_its_alias(option):
    assert_warns_beside_options("front", option, {"default": LOCMEM, "redis": REDIS, "front": tiered()})


REPLICAS = {**REDIS, "LOCATION": ["redis://127.0.0.1:1", "redis://127.0.0.1:2"]}


@pytest.mark.parametrize("redis", [LOCMEM, REPLICAS, {**REPLICAS, "BACKEND": "django_redis.cache.RedisCache"}])
def test_a_tiered_cache_that_nothing_tells_of_writes_is_a_warning_that_says_how_old_it_may_be(redis):
    """Replicas send no notifications."""
    (warning,) = warnings_for(default=LOCMEM, redis=redis, front=tiered(L1_TIMEOUT=7.5))
    assert warning.id == "wheelcache.W003"
    for part in ("'front'", "7.5 seconds"):
        assert part in warning.msg
    for part in ("HostCache", "Redis", "L1_TIMEOUT"):
        assert part in warning.hint
