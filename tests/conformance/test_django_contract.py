"""Django's own cache tests, unchanged, in a process of their own."""

import re
import subprocess
import sys
from pathlib import Path

from tests.conformance.sources import source_of

SUITE = Path(__file__).with_name("django_suite.py")


def test_djangos_own_cache_tests_pass_on_the_backend():
    outcome = subprocess.run(
        [sys.executable, SUITE, source_of("Django") / "tests"], capture_output=True, text=True, timeout=110
    )
    print(outcome.stdout, outcome.stderr)
    assert outcome.returncode == 0
    ran = re.search(r"Ran (\d+) tests", outcome.stderr)
    assert ran is not None
    # The contract alone has 54 tests; fewer than 250 in all would mean that a class was lost on the way.
    assert int(ran[1]) >= 250
