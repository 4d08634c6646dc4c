"""Source distributions of other projects, for their test suites: fetched when first needed, kept in ``.fetched``."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

FETCHED = Path(__file__).resolve().parents[2] / ".fetched"


def source_of(project: str) -> Path:
    """The unpacked source distribution of the version of ``project`` that is installed."""
    wanted = version(project)
    folder = FETCHED / f"{project.lower()}-{wanted}"
    if not folder.is_dir():
        archives = FETCHED / "archives"
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"),
                *("--dest", archives, f"{project}=={wanted}"),
            ],
            check=True,
        )
        (archive,) = (path for path in archives.glob("*.tar.gz") if path.name.lower() == f"{folder.name}.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(FETCHED / "unpacked", filter="data")
        (unpacked,) = (path for path in (FETCHED / "unpacked").iterdir() if path.name.lower() == folder.name)
        unpacked.rename(folder)
    return folder
