"""The files in .github/workflows/ are accepted by actionlint, and name commands that there are."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_actionlint_accepts_the_workflows():
    assert WORKFLOWS
    actionlint = Path(sys.executable).with_name("actionlint")
    command = [actionlint, "-no-color", "-shellcheck=", "-pyflakes=", *WORKFLOWS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_workflows_make_what_the_makefile_has():
    made = {target for file in WORKFLOWS for target in re.findall(r"run: make ([\w-]+)", file.read_text())}
    assert made
    assert made <= set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
