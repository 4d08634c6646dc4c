"""Nothing that was rolled back is ever seen, and nothing from before a committed write: see ``history``."""

import json
import os

import pytest

from tests.scripts import run
from tests.transactions.history import CACHES
from tests.transactions.records import FAULTS

pytestmark = [pytest.mark.deep, pytest.mark.servers]

READS = int(os.environ.get("HISTORY_READS", 20_000))
SECONDS = 280


@pytest.mark.parametrize("cache", CACHES)
def test_no_read_sees_what_did_not_commit_or_was_replaced_unless_the_cache_follows_no_transactions(cache):
    script = "from tests.transactions.history import main; main()"
    found = json.loads(run(script, cache, READS, timeout=SECONDS))
    assert found["errors"] == []
    assert found["reads"] >= READS
    # Without transactions, the check finds faults of each kind.
    follows = "TRANSACTIONS" in CACHES[cache].options
    assert [found[fault] > 0 for fault in FAULTS] == [not follows] * len(FAULTS), found["faults"]
