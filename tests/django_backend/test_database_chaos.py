"""Short runs of ``database_chaos``. A longer one: ``python -m tests.django_backend.database_chaos 1000000``."""

import pytest

from tests.django_backend.database_chaos import ASYNCHRONOUS, EVENTS, Run
from tests.postgresql_server import PostgresqlServer

pytestmark = [pytest.mark.servers, pytest.mark.deep]


@pytest.mark.parametrize("fault", [None, "silent", "trusting"])
def test_a_run_under_failures_has_no_wrong_read_and_notices_faults(migrated, tmp_path, own_postgresql, fault):
    with migrated(own_postgresql):
        pass
    events = {None: EVENTS, "silent": (), "trusting": ("stop reader",)}[fault]
    run = Run(own_postgresql, tmp_path, fault=fault)
    counts = run.until(5_000 if fault is None else 10_000, events)
    assert counts["hits"]
    assert (run.wrong() > 0) == (fault is not None)


def test_crashes_that_undo_commits_cause_no_wrong_read(migrated, tmp_path):
    with PostgresqlServer(**ASYNCHRONOUS) as server:
        with migrated(server):
            pass
        run = Run(server, tmp_path)
        counts = run.until(2_000, ["kill backend", "kill server"] * 2)
    assert counts["hits"]
    assert run.wrong() == 0
