"""Run the stages of .ci/run that a change needs, and print the seconds of each.

A stage is a command of the Makefile. The file .ci/landed has the hash of the last commit that passed .ci/run and is on
the main branch; each change names the one before. A stage runs if one of its files has changed since that commit. If
the history lacks that commit, for example in a shallow clone, every stage runs.
"""

import subprocess
import sys
import time
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]

ANY_FILE = ("*",)
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE")
# A name with a slash at its end is a folder with everything below it.
STAGES = {
    "check": ANY_FILE,
    "test-new-user": ANY_FILE,
    "test-python-core": ANY_FILE,
    "heart": ANY_FILE,
    "oldest": ("wheelcache/", "noxfile.py", "tests/"),
    "sanitize": ("wheelcache/core/", "tests/core/", "tests/*.py", "benchmarks/policy_streams.py"),
    "wheel": ("wheelcache/", "tests/wheel_check.py", "MANIFEST.in", *PAGES),
    "docs": ("wheelcache/", "docs/", "mkdocs.yml"),
}
"""The files that each stage depends on, in the order of the stages."""

EVERY_STAGE = ("Makefile", "pyproject.toml", "setup.py", ".ci/run", ".ci/stages.py")
"""Files that all stages depend on."""

ONLY_CHECK = ("benchmarks/", "example_project/", "compose.yaml", ".github/", ".gitignore", ".ci/landed")
"""Files that only the stages with ANY_FILE depend on."""


def is_in(path, names):
    # With a slash in front, the whole path must match.
    whole = PurePosixPath(f"/{path}")
    return any(path.startswith(name) if name.endswith("/") else whole.match(f"/{name}") for name in names)


def stages_for(paths):
    """Return the names of the stages that depend on any of ``paths``."""
    return [
        stage
        for stage, names in STAGES.items()
        if names is ANY_FILE or any(is_in(path, EVERY_STAGE + names) for path in paths)
    ]


def changed_since_landed(root):
    """Return the paths that differ from the last landed commit, or None if the history lacks that commit."""

    def git(*arguments):
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)

    landed = (root / ".ci" / "landed").read_text().strip()
    if git("merge-base", "--is-ancestor", landed, "HEAD").returncode:
        return None
    return git("diff", "--name-only", "--no-renames", landed, "HEAD").stdout.splitlines()


def needed_stages(root):
    changed = changed_since_landed(root)
    return [*STAGES] if changed is None else stages_for(changed)


def run(stages, make="make"):
    """Run the stages until one fails, and print a table of their times. Return the status of the last one."""
    times, status = {}, 0
    for stage in stages:
        started = time.monotonic()
        status = subprocess.run([make, stage], cwd=ROOT, check=False).returncode
        times[stage] = f"{time.monotonic() - started:6.0f} s{', failed' if status else ''}"
        if status:
            break
    for stage in STAGES:
        print(f"{stage:20}{times.get(stage, '     -')}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(run(needed_stages(ROOT)))
