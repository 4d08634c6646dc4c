"""The command that compiles the core of this installation, once there is a compiler."""

from __future__ import annotations

import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

REINSTALL = "--force-reinstall --no-deps --no-cache-dir"
"""The options of pip. Without the last one, it would install the wheel without the compiled core again."""


def how_to_compile(folder: Path) -> str:
    """Return a sentence that says how to get the compiled core.

    Args:
        folder: the folder of the core.
    """
    return (
        f"There is no compiled core in {folder}: install a C compiler and the headers of Python "
        f"(on Debian: apt-get install gcc python3-dev), then {_command(folder)}."
    )


def _command(folder: Path) -> str:
    checkout = folder.parents[1]
    # Only a checkout has the source of the compiled core. An installation of it elsewhere would not be used.
    if (folder / "_core.pyx").exists():
        if Path(sys.prefix) == checkout / ".venv" and (checkout / "Makefile").exists():
            return f"run make run again in {checkout}"
        return f"run {_pip()} --no-deps --editable {shlex.quote(str(checkout))}"
    source = _source(folder)
    if source is None:
        return f"reinstall wheelcache with the pip options {REINSTALL}"
    return f"run {_pip()} {REINSTALL} {shlex.quote(source)}"


def _pip() -> str:
    return "pip install" if find_spec("pip") is None else f"{shlex.quote(sys.executable)} -m pip install"


def _source(folder: Path) -> str | None:
    """Return the argument with which pip installed this package; None if it is not known."""
    try:
        installed = distribution("wheelcache")
    except PackageNotFoundError:
        return None
    about = installed.read_text("direct_url.json")
    if about is None or Path(str(installed.locate_file("wheelcache/core"))).resolve() != folder.resolve():
        return None
    found = json.loads(about)
    url: str = found["url"]
    if "vcs_info" in found:
        revision = found["vcs_info"].get("requested_revision")
        return f"wheelcache @ {found['vcs_info']['vcs']}+{url}" + (f"@{revision}" if revision else "")
    return url.removeprefix("file://")
