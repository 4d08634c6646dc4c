"""Print the stages of .ci/run that a change needs: those whose files have changed since the last landed commit.

The tests of ``make check``, ``make test-new-user``, ``make test-python-core`` and ``make heart`` always run. The file
.ci/landed has the hash of the last commit that passed .ci/run and is on the main branch; each change names the one
before. If the history lacks that commit, for example in a shallow clone, every stage is printed.
"""

import subprocess
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]

# A name with a slash at its end is a folder with everything below it.
EVERY_STAGE = ("Makefile", "pyproject.toml", "setup.py", ".ci/run", ".ci/stages.py")
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE")
STAGES = {
    "oldest": ("wheelcache/", "noxfile.py", "tests/"),
    "sanitize": ("wheelcache/core/", "tests/core/", "tests/*.py", "benchmarks/policy_streams.py"),
    "wheel": ("wheelcache/", "tests/wheel_check.py", "MANIFEST.in", *PAGES),
    "docs": ("wheelcache/", "docs/", "mkdocs.yml"),
}
"""The files that each stage depends on, in the order of the stages."""

ONLY_CHECK = ("benchmarks/", "example_project/", "compose.yaml", ".github/", ".gitignore", ".ci/landed")
"""Files that no stage depends on, but only the tests that always run."""


def is_in(path, names):
    # With a slash in front, the whole path must match.
    whole = PurePosixPath(f"/{path}")
    return any(path.startswith(name) if name.endswith("/") else whole.match(f"/{name}") for name in names)


def stages_for(paths):
    """Return the names of the stages that depend on any of ``paths``."""
    return [stage for stage, names in STAGES.items() if any(is_in(path, EVERY_STAGE + names) for path in paths)]


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def changed_since_landed():
    """Return the paths that differ from the last landed commit, or None if the history lacks that commit."""
    landed = (ROOT / ".ci" / "landed").read_text().strip()
    if git("merge-base", "--is-ancestor", landed, "HEAD").returncode:
        return None
    return git("diff", "--name-only", "--no-renames", landed, "HEAD").stdout.splitlines()


if __name__ == "__main__":
    changed = changed_since_landed()
    print(*(STAGES if changed is None else stages_for(changed)))
