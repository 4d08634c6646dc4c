"""Copies the heart of the package with its tests into an empty folder, and runs them there: ``make heart``.

Test modules that import a guest are left out. Single tests that need one are marked: see ``tests/guests.py``.
"""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

from wheelcache.engine.guests import GUESTS

ROOT = Path(__file__).parents[1]
FOLDERS = ("core", "engine", "django_backend", "flask_backend")
TESTS = (*FOLDERS, "backends")


def copy(folder):
    shutil.copy(ROOT / "pyproject.toml", folder)
    for name in ("__init__.py", "cache.py", "errors.py", "py.typed"):
        copy_file(f"wheelcache/{name}", folder)
    for name in FOLDERS:
        shutil.copytree(ROOT / "wheelcache" / name, folder / "wheelcache" / name, ignore=shutil.ignore_patterns("*.c"))
    left_out = []
    modules = [*ROOT.glob("tests/*.py"), *(path for name in TESTS for path in (ROOT / "tests" / name).rglob("*.py"))]
    for path in sorted(modules):
        name = str(path.relative_to(ROOT))
        if is_of_heart(path):
            copy_file(name, folder)
        elif path.parent.name != "tests":
            left_out.append(name)
    return left_out


def copy_file(name, folder):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / name, folder / name)


def is_of_heart(path, seen=()):
    """Return whether a module of the tests, and those that it imports, import no guest when they are imported."""
    for node in ast.parse(path.read_text()).body:
        for name in names_in(node):
            package, _, rest = name.partition(".")
            if name in NAMES or (package in ("tests", "wheelcache") and rest.partition(".")[0] in GUESTS):
                return False
            imported = ROOT.joinpath(*name.split(".")).with_suffix(".py")
            is_new = package == "tests" and imported.is_file() and imported not in seen
            if is_new and not is_of_heart(imported, (*seen, path)):
                return False
    return True


def names_in(node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] in ("tests", "wheelcache"):
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def names_of_guests():
    """Return the names in the packages of the backends that are found in guests."""
    for package in ("wheelcache.django_backend", "wheelcache.flask_backend"):
        for node in ast.walk(ast.parse(ROOT.joinpath(*package.split("."), "__init__.py").read_text())):
            if isinstance(node, ast.ImportFrom) and node.module.partition(".")[2].partition(".")[0] in GUESTS:
                yield from (f"{package}.{alias.name}" for alias in node.names)


NAMES = frozenset(names_of_guests())


if __name__ == "__main__":
    folder, *options = sys.argv[1:]
    shutil.rmtree(folder, ignore_errors=True)
    Path(folder).mkdir(parents=True)
    left_out = copy(Path(folder))
    print("Left out, since they import guests:", *left_out, sep="\n  ")
    tests = [f"tests/{name}" for name in TESTS]
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, *tests], cwd=folder))
