"""cachelib's own tests, unchanged, in a process of their own."""

import re
import subprocess
import sys
from pathlib import Path

from tests.conformance.sources import source_of

SUITE = Path(__file__).with_name("cachelib_suite.py")


def test_cachelibs_own_tests_pass_on_the_flask_backend():
    # ``python -m`` makes the working directory importable, and the tests import each other by bare names.
    outcome = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", SUITE],
        cwd=source_of("cachelib") / "tests",
        capture_output=True,
        text=True,
        timeout=110,
    )
    print(outcome.stdout, outcome.stderr)
    assert outcome.returncode == 0
    ran = re.search(r"^(\d+) passed in", outcome.stdout, re.MULTILINE)
    assert ran is not None
    # 26 for each kind of WheelCache, 21 for TieredCache; fewer than 66 would mean that a set was lost on the way.
    assert int(ran[1]) >= 66
