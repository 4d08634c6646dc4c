"""Other projects' test suites and tools, from PyPI and npm: fetched when first needed, kept in ``.fetched``."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path

FETCHED = Path(__file__).resolve().parents[2] / ".fetched"


HTTP_CACHE_TESTS = "http-cache-tests@0.4.5"
PYRIGHT = "pyright@1.1.414"


def made(name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder of ``.fetched``, which ``make`` fills if it is not there."""
    FETCHED.mkdir(exist_ok=True)
    folder = FETCHED / name
    with (FETCHED / f"{name}.lock").open("w") as lock:
        # Tests in other processes need the same folder.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            try:
                make(folder)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
    return folder


def source_of(project: str) -> Path:
    """Return the unpacked source distribution of the version of ``project`` that is installed."""
    return made(f"{project.lower()}-{version(project)}", partial(_fetch, f"{project}=={version(project)}"))


def _fetch(wanted: str, folder: Path) -> None:
    archives = FETCHED / "archives"
    options = ["--quiet", "--no-deps", "--no-binary", ":all:", "--dest", archives]
    subprocess.run([sys.executable, "-m", "pip", "download", *options, wanted], check=True)
    (archive,) = (path for path in archives.glob("*.tar.gz") if path.name.lower() == f"{folder.name}.tar.gz")
    # Python 3.11.4 has filters. Python 3.12 and 3.13 warn where none is given.
    safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(archive) as tar:
        tar.extractall(FETCHED / "unpacked", **safely)
    (unpacked,) = (path for path in (FETCHED / "unpacked").iterdir() if path.name.lower() == folder.name)
    unpacked.rename(folder)


def npm_package(wanted: str) -> Path:
    """Return the folder of a package from npm, ``name@version``, with the packages that it needs."""

    def install(folder: Path) -> None:
        folder.mkdir()
        # npm installs into the nearest folder with this file. With --prefix, it would not read the machine's npmrc.
        (folder / "package.json").write_text("{}")
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--omit=optional", "--loglevel", "error"]
        subprocess.run(["npm", "install", *options, wanted], cwd=folder, check=True)

    return made(wanted, install) / "node_modules" / wanted.partition("@")[0]
