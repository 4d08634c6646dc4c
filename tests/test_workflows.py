"""The files in .github/workflows/ are accepted by actionlint. They and the documentation name commands that exist, and
the versions that `make oldest` tests."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


ACTIONLINT = Path(sys.executable).with_name("actionlint")


@pytest.mark.skipif(not ACTIONLINT.exists(), reason="only the dependencies for development include actionlint")
def test_actionlint_accepts_the_workflows():
    assert WORKFLOWS
    command = [ACTIONLINT, "-no-color", "-shellcheck=", "-pyflakes=", *WORKFLOWS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_workflows_make_what_the_makefile_has():
    made = {target for file in WORKFLOWS for target in re.findall(r"run: make ([\w-]+)", file.read_text())}
    assert made
    assert made <= set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_make_help_lists_the_commands_of_the_documentation():
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=250)
    listed = {*re.findall(r"^make (\S+) +\w.*", done.stdout, re.MULTILINE)}
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    named = {name for page in pages for name in re.findall(r"(?:^|`)make ([\w-]+)", page.read_text(), re.MULTILINE)}
    assert {"demo", "help", "reference", "test"} <= named <= listed


def test_the_oldest_versions_of_the_frameworks_are_documented_and_tested():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    oldest = dict(each.split(">=") for each in extras["django"] + extras["flask"])
    assert [*oldest] == ["Django", "Flask", "Flask-Caching"]
    session, page = (ROOT / "noxfile.py").read_text(), " ".join((ROOT / "README.md").read_text().split())
    for name, version in oldest.items():
        assert f'"{name}=={version}' in session
        assert f"{name} {version} and newer" in page
