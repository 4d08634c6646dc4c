"""Type checkers accept a user's code, and report its errors."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.sources import FETCHED, PYRIGHT, npm_package

CONSUMER = Path(__file__).parent / "consumer.py"

pytestmark = pytest.mark.conformance


def mypy(file):
    # Not the folder of make lint, whose options differ.
    kept = f"--cache-dir={FETCHED / 'mypy'}"
    return [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent", kept, file]


def pyright(file):
    return ["node", npm_package(PYRIGHT) / "index.js", "--pythonpath", sys.executable, file]


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_type_checkers_accept_right_code_and_refuse_each_wrong_line(checker, tmp_path):
    copy = tmp_path / CONSUMER.name
    copy.write_text(CONSUMER.read_text())
    wrong = {number for number, line in enumerate(copy.read_text().splitlines(), 1) if "# error" in line}
    done = subprocess.run(checker(copy), cwd=tmp_path, capture_output=True, text=True, timeout=250)
    lines = re.findall(r"consumer\.py:(\d+)[:\d ]+[-]? ?error", done.stdout)
    assert {int(each) for each in lines} == wrong, done.stdout + done.stderr
