"""Turns under stress: see ``turn_stress``."""

import json
import os

import pytest

from tests.engine.loading.turn_stress import FAULTS
from tests.scripts import start

OPERATIONS = int(os.environ.get("STRESS_OPERATIONS", 100_000))


def faults(operations, seconds):
    """Return the faults of a run, which this gives up after so many seconds."""
    with start("from tests.engine.loading.turn_stress import main; main()", operations) as process:
        try:
            output, errors = process.communicate(timeout=seconds)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    counts = json.loads(output)
    assert counts["coalesced"]
    return {fault: counts[fault] for fault in FAULTS}


NONE = dict.fromkeys(FAULTS, 0)


def test_no_caller_gets_an_outdated_value_loads_what_another_one_loads_or_waits_forever():
    assert faults(8_000, 110) == NONE


@pytest.mark.deep
@pytest.mark.timeout(0)
def test_the_same_at_length(at_length):
    operations = at_length(OPERATIONS)
    # On an idle machine, 10,000 take a second.
    assert faults(operations, operations / 50) == NONE
