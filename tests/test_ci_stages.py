"""Every file is in the lists of .ci/stages.py, and a change runs the stages that depend on its files."""

import re
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / ".ci" / "stages.py"

IMPORT = re.compile(r"^\s*from ((?:tests|benchmarks)\.[\w.]+) import", re.MULTILINE)

specification = spec_from_file_location("stages", SCRIPT)
stages = module_from_spec(specification)
specification.loader.exec_module(stages)

KNOWN = [*stages.EVERY_STAGE, *stages.ONLY_CHECK, *(name for names in stages.STAGES.values() for name in names)]


def test_every_file_is_in_a_list():
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert tracked
    assert [path for path in tracked if not stages.is_in(path, KNOWN)] == []


@pytest.mark.parametrize("path", ["new/setup.py", "new/README.md", "new/tests/x.py", "tests.py", "new.py"])
def test_a_file_elsewhere_is_in_no_list_whatever_its_name(path):
    assert not stages.is_in(path, KNOWN)


@pytest.mark.parametrize(
    ("path", "needed"),
    [
        ("wheelcache/core/map.pxi", ["oldest", "sanitize", "wheel", "docs"]),
        ("wheelcache/engine/turns.py", ["oldest", "wheel", "docs"]),
        ("tests/core/test_steps.py", ["oldest", "sanitize"]),
        ("tests/waiting.py", ["oldest", "sanitize"]),
        ("tests/pages/test_safety.py", ["oldest"]),
        ("example_project/manage.py", []),
        (".ci/landed", []),
        ("docs/how-to/pages.md", ["docs"]),
        ("README.md", ["wheel"]),
        ("Makefile", ["oldest", "sanitize", "wheel", "docs"]),
    ],
)
def test_a_change_runs_the_stages_that_depend_on_it(path, needed):
    assert stages.stages_for([path]) == needed


def test_the_sanitized_tests_import_only_files_that_their_stage_depends_on():
    sources = [file.read_text() for file in (ROOT / "tests" / "core").glob("*.py")]
    imported = {name.replace(".", "/") + ".py" for text in sources for name in IMPORT.findall(text)}
    assert "tests/waiting.py" in imported
    assert [path for path in imported if "sanitize" not in stages.stages_for([path])] == []


@pytest.fixture
def repository(tmp_path):
    """A repository with the script and two commits, and what runs git in it."""

    def git(*arguments):
        command = ["git", "-c", "user.name=A", "-c", "user.email=a@example.com", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    (tmp_path / ".ci").mkdir()
    shutil.copy(SCRIPT, tmp_path / ".ci")
    (tmp_path / "docs").mkdir()
    git("init", "--quiet")
    for text in ("one", "two"):
        (tmp_path / "docs" / "index.md").write_text(text)
        git("add", ".")
        git("commit", "--quiet", "--message", text)
    return tmp_path, git


def printed(folder, landed):
    (folder / ".ci" / "landed").write_text(f"{landed}\n")
    command = [sys.executable, folder / ".ci" / "stages.py"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_only_what_has_changed_since_the_landed_commit_runs(repository):
    folder, git = repository
    assert printed(folder, git("rev-parse", "HEAD^")) == ["docs"]
    assert printed(folder, git("rev-parse", "HEAD")) == []


def test_without_a_known_landed_commit_every_stage_runs(repository):
    folder, git = repository
    git("commit", "--quiet", "--amend", "--message", "rewritten")
    rewritten = git("rev-parse", "HEAD")
    git("reset", "--quiet", "--hard", "HEAD^")
    for unknown in ("0" * 40, rewritten, "", "no commit"):
        assert printed(folder, unknown) == [*stages.STAGES]
