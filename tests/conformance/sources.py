"""Other projects' test suites and tools, from PyPI and npm: fetched when first needed, kept in ``.fetched``."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

FETCHED = Path(__file__).resolve().parents[2] / ".fetched"


def source_of(project: str) -> Path:
    """The unpacked source distribution of the version of ``project`` that is installed."""
    wanted = version(project)
    folder = FETCHED / f"{project.lower()}-{wanted}"
    FETCHED.mkdir(exist_ok=True)
    with (FETCHED / f"{project}.lock").open("w") as lock:
        # Tests in other processes fetch the same project.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            fetch(project, wanted, folder)
    return folder


HTTP_CACHE_TESTS = "http-cache-tests@0.4.5"


PYRIGHT = "pyright@1.1.414"


def npm_package(wanted: str) -> Path:
    """Return the folder of a package from npm, ``name@version``, with the packages that it needs."""
    folder = FETCHED / wanted
    FETCHED.mkdir(exist_ok=True)
    with (FETCHED / f"{wanted}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            unpacked = Path(tempfile.mkdtemp(dir=FETCHED))
            # npm installs into the nearest folder with this file. With --prefix, it would not read the machine's npmrc.
            (unpacked / "package.json").write_text("{}")
            options = ["--ignore-scripts", "--no-audit", "--no-fund", "--omit=optional", "--loglevel", "error"]
            subprocess.run(["npm", "install", *options, wanted], cwd=unpacked, check=True)
            unpacked.rename(folder)
    return folder / "node_modules" / wanted.partition("@")[0]


def fetch(project: str, wanted: str, folder: Path) -> None:
    archives = FETCHED / "archives"
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"),
            *("--dest", archives, f"{project}=={wanted}"),
        ],
        check=True,
    )
    (archive,) = (path for path in archives.glob("*.tar.gz") if path.name.lower() == f"{folder.name}.tar.gz")
    # Python 3.11.4 has filters. Python 3.12 and 3.13 warn where none is given.
    safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(archive) as tar:
        tar.extractall(FETCHED / "unpacked", **safely)
    (unpacked,) = (path for path in (FETCHED / "unpacked").iterdir() if path.name.lower() == folder.name)
    unpacked.rename(folder)
