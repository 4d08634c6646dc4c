"""No read through copies is outdated while the nodes of a Redis Cluster fail, fail over and move their slots.

These are short runs of ``cluster_chaos``, which says how to make long ones.
"""

import pytest

from tests.near_cache.cluster_chaos import EVENTS, run

pytestmark = [pytest.mark.servers, pytest.mark.deep]

READS = 2000


@pytest.mark.parametrize("event", EVENTS)
def test_no_read_is_older_than_promised(event):
    reads, hits, _, wrong, _, _ = run(event, READS, allows_pauses=True)
    assert reads > READS
    assert hits
    assert wrong == 0


def test_without_the_question_about_the_topology_reads_of_a_new_nodes_keys_are_outdated():
    *_, wrong, _, _ = run("new-node", READS, is_checked=False)
    assert wrong
