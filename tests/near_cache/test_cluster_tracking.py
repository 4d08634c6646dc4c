"""Invalidations from a real Redis Cluster, whose masters and slots change."""

import pytest

from tests.redis_cluster import Cluster
from tests.waiting import until
from wheelcache.near_cache.cluster_tracking import Topology

pytestmark = pytest.mark.servers

KEYS = [f"a:{number}" for number in range(30)]
"""Keys of all masters."""


@pytest.fixture(scope="module")
def cluster_with_replicas():
    with Cluster(replicas=True) as cluster:
        yield cluster


@pytest.fixture
def own_cluster(cluster_with_replicas):
    """A cluster whose nodes the test may stop, and whose slots it may move: it must leave it whole.

    A cluster takes four seconds to form. No test depends on where earlier ones have left the slots.
    """
    assert until(cluster_with_replicas.is_whole)
    return cluster_with_replicas


@pytest.fixture
def track_cluster(track, copies):
    """Make a ``Tracking`` of a cluster that is started and trusted."""

    def start(cluster):
        client = cluster.client(socket_timeout=1)
        topology = Topology(lambda: client)
        track(topology.masters, copies, question=topology)

    return start


def are_all_told(cluster, copies):
    """Return whether the listener receives a write of each key."""
    copies.told.clear()
    client = cluster.client()

    def are_told():
        # Each time, since the connection may be lost once more.
        for key in KEYS:
            client.set(key, 1)
        return {key.encode() for key in KEYS} <= set(copies.told)

    return until(are_told)


def is_trusted_again(copies):
    return until(lambda: False in copies.told and copies.told[-1] is True)


def test_writes_and_flushes_of_all_masters_are_told(shared_cluster, track_cluster, copies):
    track_cluster(shared_cluster)
    assert are_all_told(shared_cluster, copies)
    shared_cluster.client().set("b:1", 1)
    shared_cluster.nodes[1].ask("FLUSHALL")
    assert until(lambda: copies.told[-1] == "all")
    assert b"b:1" not in copies.told


def test_a_node_that_receives_slots_ends_the_trust_until_it_is_tracked(own_cluster, track_cluster, copies, lines):
    track_cluster(own_cluster)
    new, origin = own_cluster.add_node(), own_cluster.master_of("a:1")
    own_cluster.move([own_cluster.nodes[0].ask("CLUSTER KEYSLOT", "a:1")], origin, new)
    assert is_trusted_again(copies)
    assert new.client().client_list(_type="pubsub")
    assert are_all_told(own_cluster, copies)
    assert "ClusterError: the cluster has " in lines()[0]
