"""Nothing that was rolled back is ever seen, and nothing from before a committed write: see ``history``."""

import json
import os

import pytest

from tests.scripts import start
from tests.transactions.records import FAULTS, WRONG_LOADS

pytestmark = pytest.mark.deep

READS = int(os.environ.get("HISTORY_READS", 20_000))
SECONDS = 280


def counts(*options):
    """Return the counts of a run, and its description of wrong reads."""
    with start("from tests.transactions.history import main; main()", READS, *options) as process:
        try:
            output, errors = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    return json.loads(output), errors


def check(*options):
    found, faults = counts(*options)
    assert {name: found[name] for name in (*FAULTS, WRONG_LOADS, "stuck", "errors")} == dict.fromkeys(
        (*FAULTS, WRONG_LOADS, "stuck", "errors"), 0
    ), faults
    assert found["reads"] >= READS


@pytest.mark.parametrize("cache", ["host", "leases", "small", "threads"])
def test_no_read_sees_what_did_not_commit_or_was_replaced_in_sqlite(cache):
    check("--cache", cache)


@pytest.mark.servers
@pytest.mark.parametrize("cache", ["host", "leases", "threads", "tracked"])
def test_no_read_sees_what_did_not_commit_or_was_replaced_in_postgresql(cache):
    check("--database", "postgresql", "--cache", cache)


def test_the_check_finds_a_cache_that_does_not_follow_transactions():
    found, _ = counts("--without-transactions")
    assert all(found[fault] for fault in FAULTS), found
    assert found[WRONG_LOADS] == 0
