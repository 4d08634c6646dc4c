"""The command that follows the advice for the example site."""

import re

import pytest

from tests.example.conftest import MANAGE
from tests.scripts import run_python

pytestmark = [pytest.mark.deep, pytest.mark.compiled]


def test_the_advice_for_too_small_a_cache_comes_true(filled_database):
    done = run_python(MANAGE, "follow_advice", env={"ATLAS_DATABASE": str(filled_database)}, check=True)
    assert "Cache 'too small': " in done.stdout
    rows = re.findall(r"│ (\w+)=\S+ +│ +([\d.]+) │ +([\d.]+) │ +([\d.]+) │", done.stdout)
    # The secret of the cache decides which advice is in no doubt.
    assert len(rows) == done.stdout.count("would raise its hit ratio")
    for option, *ratios in rows:
        before, promised, realised = map(float, ratios)
        assert option in ("MAX_ENTRIES", "POLICY")
        assert realised - before >= (promised - before) / 2
