"""Every file is in the lists of .ci/stages.py, and a change runs the stages that depend on its files."""

import re
import shutil
import subprocess
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALWAYS = ["check", "test-new-user", "test-python-core", "heart"]

specification = spec_from_file_location("stages", ROOT / ".ci" / "stages.py")
stages = module_from_spec(specification)
specification.loader.exec_module(stages)


def git(folder, *arguments):
    command = ["git", "-c", "user.name=A", "-c", "user.email=a@example.com", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def test_every_file_is_in_a_list():
    lists = [stages.EVERY_STAGE, stages.ONLY_CHECK, *stages.STAGES.values()]
    known = [name for names in lists if names is not stages.ANY_FILE for name in names]
    assert [path for path in git(ROOT, "ls-files").splitlines() if not stages.is_in(path, known)] == []
    assert not any(stages.is_in(path, known) for path in ("new/setup.py", "new/tests/x.py", "tests.py", "new.py"))


@pytest.mark.parametrize(
    ("path", "needed"),
    [
        ("wheelcache/core/map.pxi", ["oldest", "sanitize", "wheel", "docs"]),
        ("wheelcache/engine/turns.py", ["oldest", "wheel", "docs"]),
        ("tests/waiting.py", ["oldest", "sanitize"]),
        ("tests/pages/test_safety.py", ["oldest"]),
        ("example_project/manage.py", []),
        ("README.md", ["wheel"]),
        ("Makefile", ["oldest", "sanitize", "wheel", "docs"]),
    ],
)
def test_a_change_runs_the_stages_that_depend_on_it(path, needed):
    assert stages.stages_for([path]) == ALWAYS + needed


def test_the_sanitized_tests_import_only_files_that_their_stage_depends_on():
    sources = [file.read_text() for file in (ROOT / "tests" / "core").glob("*.py")]
    names = {
        name
        for text in sources
        for name in re.findall(r"^from ((?:tests|benchmarks)\.[\w.]+) import", text, re.MULTILINE)
    }
    imported = {name.replace(".", "/") + ".py" for name in names}
    assert "tests/memory.py" in imported
    assert [path for path in imported if "sanitize" not in stages.stages_for([path])] == []


def test_the_stages_depend_on_the_changes_since_the_landed_commit_if_the_history_has_it(tmp_path):
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    git(tmp_path, "init", "--quiet")
    for name in ("README.md", "mkdocs.yml"):
        (tmp_path / name).write_text(name)
        git(tmp_path, "add", name)
        git(tmp_path, "commit", "--quiet", "--message", name)

    def needed(landed):
        (tmp_path / ".ci" / "landed").write_text(f"{landed}\n")
        return stages.needed_stages(tmp_path)

    assert needed(git(tmp_path, "rev-parse", "HEAD^")) == [*ALWAYS, "docs"]
    assert needed(git(tmp_path, "rev-parse", "HEAD")) == ALWAYS
    git(tmp_path, "commit", "--quiet", "--amend", "--message", "rewritten")
    rewritten = git(tmp_path, "rev-parse", "HEAD")
    git(tmp_path, "reset", "--quiet", "--hard", "HEAD^")
    for unknown in ("0" * 40, rewritten, ""):
        assert needed(unknown) == [*stages.STAGES]


def test_the_stages_end_with_the_first_that_fails_and_a_table_of_their_times(tmp_path, capfd):
    make = tmp_path / "make"
    make.write_text('#!/bin/sh\n[ "$1" != heart ]\n')
    make.chmod(0o755)
    assert stages.run(["check", "heart", "docs"], make) == 1
    printed = [line.split(maxsplit=1) for line in capfd.readouterr().out.splitlines()]
    assert [name for name, _ in printed] == [*stages.STAGES]
    assert [time for _, time in printed if time != "-"] == ["0 s", "0 s, failed"]
