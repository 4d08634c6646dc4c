"""A site that others wrote, from its public source: fetched, installed, and served with and without wheelcache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.conformance.sources import made
from tests.servers.process import running

ROOT = Path(__file__).parents[2]
HOST = "www.example.com"
WORKERS = 2
SLOW = 120
"""Seconds that a site may take to start, on a busy machine."""


@dataclass(frozen=True)
class Site:
    """A site, and how it is filled and visited. Its own files stay as they are.

    Attributes:
        name: of the site, as in the table.
        repository, commit: its public source.
        plain: the module that serves it without wheelcache, under the name ``application``.
        cached: the module that serves it with wheelcache. {options} stands for the arguments of the HTTP cache.
        modules: other modules that the two need, by name.
        prepare: commands that fill its database with its own data, as arguments of Python.
        rehearsal: the command that prints the results of a rehearsal, as arguments of Python.
        log_in: the path of the form, and its fields.
        requirements: the file with its requirements, or "" if it has none.
        also_installed, not_installed: changes to its requirements, such as another driver of the database.
        without: a pattern for paths that visitors do not request.
        varies: patterns of text that differs between two answers of the site itself.
        cannot_gain: the reason why it gains nothing, as the rehearsal must give it; "" if it gains.
        environment: variables of all its processes.
    """

    name: str
    repository: str
    commit: str
    plain: str
    cached: str
    prepare: list[list[str]]
    rehearsal: list[str]
    log_in: tuple[str, dict[str, str]]
    modules: dict[str, str] = field(default_factory=dict)
    gunicorn: list[str] = field(default_factory=list)
    requirements: str = "requirements.txt"
    also_installed: tuple[str, ...] = ()
    not_installed: tuple[str, ...] = ()
    without: str = r"(?!)"
    varies: tuple[str, ...] = (r"(?!)",)
    cannot_gain: str = ""
    environment: dict[str, str] = field(default_factory=dict)

    def source(self) -> Path:
        """Return the folder with its source. It is fetched once."""
        return made(f"{self._slug}-{self.commit[:10]}", self._fetch)

    @property
    def _slug(self) -> str:
        return self.name.lower().replace(" ", "-")

    def _fetch(self, folder: Path) -> None:
        git = ["git", "-C", folder]
        subprocess.run(["git", "init", "--quiet", folder], check=True)
        subprocess.run([*git, "fetch", "--quiet", "--depth=1", self.repository, self.commit], check=True)
        subprocess.run([*git, "checkout", "--quiet", "FETCH_HEAD"], check=True)

    def python(self) -> Path:
        """Return the Python of a virtual environment with its requirements, gunicorn, and this checkout."""
        lines = (self.source() / self.requirements).read_text().splitlines() if self.requirements else []
        wanted = [line for line in lines if not line.startswith(tuple(f"{name}==" for name in self.not_installed))]
        requirements = "\n".join([*wanted, "gunicorn", "rich", *self.also_installed, ""])
        digest = hashlib.sha256(f"{sys.version} {requirements}".encode()).hexdigest()[:10]
        folder = made(f"{self._slug}-venv-{digest}", lambda folder: _install(folder, requirements))
        # At the end of the path, as an editable installation, but without another build.
        (packages,) = folder.glob("lib/python*/site-packages")
        (packages / "checkout_of_wheelcache.pth").write_text(f"{ROOT}\n")
        return folder / "bin" / "python"

    def copied(self, folder: Path, **environment: str) -> Copy:
        """Copy the source to ``folder``, since sites write into their own folder."""
        shutil.copytree(self.source(), folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git"))
        for name, text in {**self.modules, "plain_site": self.plain}.items():
            (folder / f"{name}.py").write_text(text)
        copy = Copy(self, folder, {**os.environ, "PYTHONHASHSEED": "0", **self.environment, **environment})
        copy.set_options("")
        return copy


@dataclass(frozen=True)
class Copy:
    """A copy of a site's source."""

    site: Site
    folder: Path
    environment: dict[str, str]

    def fill(self) -> None:
        """Create its database, and fill it with its own data."""
        for command in self.site.prepare:
            self.run(*command)

    def set_options(self, options: str) -> None:
        """Write the arguments of the HTTP cache, as the site's author would paste them."""
        (self.folder / "cached_site.py").write_text(self.site.cached.replace("{options}", options))

    def run(self, *arguments: str) -> str:
        """Run Python in the site's folder. Return its output."""
        command = [self.site.python(), *arguments]
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{arguments}:\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
        return done.stdout

    @contextmanager
    def served(self, module: str):
        """Serve ``plain_site`` or ``cached_site`` with two workers. Yield the URL."""
        command = ["-m", "gunicorn", "--workers", str(WORKERS), "--bind", "127.0.0.1:{port}", *self.site.gunicorn]
        how = {"is_up": _answers, "python": self.site.python(), "cwd": self.folder, "patience": SLOW}
        with running(
            [*command, f"{module}:application"], self.folder / f"{module}.log", **how, **self.environment
        ) as server:
            yield server.url


def _answers(server) -> bool:
    try:
        return httpx.get(server.url, headers={"Host": HOST}, timeout=SLOW).status_code < 500
    except httpx.TransportError:
        return False


def _install(folder: Path, requirements: str) -> None:
    venv.create(folder, with_pip=True)
    (folder / "requirements.txt").write_text(requirements)
    command = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "-r", folder / "requirements.txt"]
    subprocess.run(command, check=True)
