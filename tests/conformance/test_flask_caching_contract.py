"""Flask-Caching's own tests, unchanged, in a process of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.conformance.sources import source_of

ROOT = Path(__file__).parents[2]

MODULES = ["test_basic_app", "test_cache", "test_memoize", "test_view", "test_templates", "test_signals"]


def test_flask_cachings_own_tests_pass_on_the_backend():
    # By the name that its source distribution has. ``python -m`` makes the working directory importable.
    outcome = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.conformance.flask_caching_suite"),
            *(f"{module}.py" for module in MODULES),
        ],
        cwd=source_of("Flask_Caching") / "tests",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=110,
    )
    print(outcome.stdout, outcome.stderr)
    assert outcome.returncode == 0
    ran = re.search(r"(\d+) passed", outcome.stdout)
    used = re.search(r"^(\d+) tests used WheelCache$", outcome.stdout, re.MULTILINE)
    assert ran is not None
    assert used is not None
    # 131 and 125 of Flask-Caching 2.5.1; far fewer would mean that a module, or the backend, was lost on the way.
    assert int(ran[1]) >= 125
    assert int(used[1]) >= 120
