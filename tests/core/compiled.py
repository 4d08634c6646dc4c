"""Compile the core when it is first needed, into ``.fetched/core``, under a name made from its source."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "wheelcache" / "core").glob("*.p[xy][ix]"))
BUILT = ROOT / ".fetched" / "core"
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


def compiled_core():
    """The class ``CompiledCore``."""
    return _module().CompiledCore


def _module():
    name = "_core"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, _library())
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]


def _library() -> Path:
    """The compiled module. One process compiles it, the others wait."""
    made_from = b"".join(each.read_bytes() for each in SOURCES) + f"{version('Cython')} {sys.version} {SUFFIX}".encode()
    library = BUILT / hashlib.sha256(made_from).hexdigest()[:16] / f"_core{SUFFIX}"
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            _compile(library)
    return library


def _compile(library: Path) -> None:
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        raise RuntimeError(f"The compiled core needs a C compiler: {compiler} is not installed.")
    with tempfile.TemporaryDirectory(dir=BUILT) as folder:
        for each in SOURCES:
            shutil.copy(each, folder)
        done = subprocess.run(
            [sys.executable, "-m", "Cython.Build.Cythonize", "--inplace", "--quiet", "_core.pyx"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"The compiled core could not be built.\n{done.stdout}")
        (built,) = Path(folder).glob(f"*{SUFFIX}")
        library.parent.mkdir(exist_ok=True)
        built.rename(library)
