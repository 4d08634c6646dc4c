"""RedisClusterCache: a Redis Cluster as a cache of Django's, alone and behind a TieredCache.

Django's contract is tested in ``tests/conformance``, and both levels together in ``tests/backends``.
"""

from functools import partial

import pytest
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from tests.runtime.forks import fork
from wheelcache.near_cache.django_checks import check_reports

pytestmark = pytest.mark.servers

BACKEND = "wheelcache.django_backend.RedisClusterCache"


def over(location, **options):
    """Return settings with a cluster, and a TieredCache in front of it."""
    behind = {"BACKEND": BACKEND, "LOCATION": location, "OPTIONS": options}
    tiered = {"BACKEND": "wheelcache.django_backend.TieredCache", "OPTIONS": {"L2": "behind"}}
    return override_settings(CACHES={"default": behind, "behind": behind, "tiered": tiered})


@pytest.fixture
def cluster(empty_cluster):
    with over(empty_cluster.url):
        yield empty_cluster


KEYS = {f"k{number}": number for number in range(50)}


def keys_of(cluster):
    return [len(node.ask("KEYS", "*")) for node in cluster.nodes]


def test_keys_of_all_nodes_are_written_read_and_deleted_together(cluster):
    cache = caches["behind"]
    assert cache.set_many(KEYS, 100) == []
    assert min(keys_of(cluster)) > 0
    assert cache.get_many([*KEYS, "none"]) == KEYS
    assert cache.delete_many(KEYS) is None
    assert keys_of(cluster) == [0, 0, 0]
    assert cache.get_many([]) == {}
    for delete in (partial(cache.set_many, KEYS, 0), partial(cache.set_many, KEYS, -1), cache.clear):
        cache.set_many(KEYS)
        delete()
        assert keys_of(cluster) == [0, 0, 0]


@pytest.mark.parametrize("as_list", [False, True], ids=["a string", "a list"])
def test_a_node_that_is_not_there_is_skipped(empty_cluster, as_list):
    urls = ["redis://127.0.0.1:1", *empty_cluster.url.split(",")]
    with over(urls if as_list else ",".join(urls), socket_timeout=1):
        caches["behind"].set("k", 1)
        assert caches["behind"].get("k") == 1


def test_the_threads_of_a_process_share_a_client(cluster, together):
    assert len(set(map(id, together(lambda _: caches["behind"]._cache.get_cluster())))) == 1


def test_the_child_of_a_fork_has_a_client_of_its_own(cluster):
    cache = caches["behind"]
    cache.set("k", 1)
    parents = cache._cache.get_cluster()

    def child():
        assert cache.get("k") == 1
        assert cache._cache.get_cluster() is not parents
        cache.set("k", 2)

    assert fork(child)
    assert cache.get("k") == 2


@pytest.mark.parametrize("option", ["pool_class", "parser_class"])
def test_options_that_have_no_effect_on_a_cluster_are_errors(option):
    refused = pytest.raises(ImproperlyConfigured, match=rf"'default'.*: {option} must be left out.*, not 'x'\.")
    with over("redis://localhost:1", **{option: "x"}), refused:
        caches["default"]


FROM_REPLICAS = {"read_from_replicas": True, "load_balancing_strategy": "round_robin"}


@pytest.mark.parametrize("option", FROM_REPLICAS)
def test_a_cluster_that_is_read_from_replicas_is_not_trusted_to_tell(option, trackings):
    with over("redis://localhost:1", **{option: FROM_REPLICAS[option]}):
        assert [message.id for message in check_reports(None)] == ["wheelcache.W003"]
        assert not caches["tiered"].store.is_notified
    assert trackings() == ()


def test_a_cluster_tells_and_the_settings_connect_to_nothing():
    with over("redis://localhost:1"):
        assert check_reports(None) == []
        assert caches["tiered"].store.is_notified
