"""Copies the heart of the package with its tests into an empty folder, and runs them there: ``make heart``.

A module of the heart, or of its tests, that imports a guest fails there. Tests that need one are marked: see
``tests/guests.py``.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("runtime", "core", "engine", "django_backend", "flask_backend")
TESTS = tuple(f"tests/{name}" for name in (*FOLDERS, "backends"))
ignored = shutil.ignore_patterns("__pycache__", "*.c")


def copy(folder):
    helpers = [path.relative_to(ROOT) for path in ROOT.glob("tests/*.py") if not path.name.startswith("test_")]
    modules = [f"wheelcache/{name}" for name in ("__init__.py", "cache.py", "errors.py", "py.typed")]
    for name in (*(f"wheelcache/{name}" for name in FOLDERS), *TESTS):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in ("pyproject.toml", *modules, *helpers):
        shutil.copy(ROOT / name, folder / name)


if __name__ == "__main__":
    folder, *options = sys.argv[1:]
    shutil.rmtree(folder, ignore_errors=True)
    copy(Path(folder))
    environment = os.environ | {"PYTHONPATH": os.path.abspath(folder)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, *TESTS]
    sys.exit(subprocess.call(command, cwd=folder, env=environment))
