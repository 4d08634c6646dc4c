"""Copies the heart of the package, or with guests, into an empty folder, and runs the tests there: ``make heart``.

A module of the heart, or of its tests, that imports a guest fails there, and so does a module of these guests that
imports another one. Tests that need a guest are marked: see ``tests/guests.py``.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from wheelcache.engine.guests import GUESTS

ROOT = Path(__file__).parents[1]
HEART = ("runtime", "core", "engine", "django_backend", "flask_backend")
ignored = shutil.ignore_patterns("__pycache__", "*.c")


def copy(folder, guests):
    helpers = [path.relative_to(ROOT) for path in ROOT.glob("tests/*.py") if not path.name.startswith("test_")]
    modules = [f"wheelcache/{name}" for name in ("__init__.py", "cache.py", "errors.py", "py.typed")]
    parts = (*HEART, *guests)
    tests = (f"tests/{part}" for part in (*parts, "backends"))
    for name in (*(f"wheelcache/{part}" for part in parts), *tests, "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in ("pyproject.toml", *modules, *helpers):
        shutil.copy(ROOT / name, folder / name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="is emptied")
    parser.add_argument("--guests", nargs="*", choices=GUESTS, help="run their tests instead of the heart's")
    given, options = parser.parse_known_args()
    shutil.rmtree(given.folder, ignore_errors=True)
    guests = given.guests or []
    copy(given.folder, guests)
    tests = [f"tests/{name}" for name in guests or (*HEART, "backends")]
    environment = os.environ | {"PYTHONPATH": os.path.abspath(given.folder)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, *tests]
    sys.exit(subprocess.call(command, cwd=given.folder, env=environment))
