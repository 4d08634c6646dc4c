"""The choice of the core: the compiled one, unless it is missing or the other one is requested."""

import html
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.scripts import run_python
from wheelcache.core.how_to_compile import how_to_compile

ROOT = Path(__file__).parents[1]
USE = """
import wheelcache, wheelcache.core
cache = wheelcache.Cache()
cache.set(1, 2)
print(wheelcache.core.IMPLEMENTATION, cache.get(1))
"""


def run(script, asked="", cwd=ROOT):
    return run_python("-c", script, env={"WHEELCACHE_CORE": asked}, cwd=cwd)


@pytest.mark.parametrize(
    ("asked", "runs"),
    [
        *(pytest.param(asked, "compiled", marks=pytest.mark.compiled) for asked in ("", "compiled")),
        ("python", "python"),
    ],
)
def test_the_core_that_runs_is_the_one_that_was_asked_for_and_says_so(asked, runs):
    assert run(USE, asked).stdout == f"{runs} 2\n"


SIGNATURES = """
import inspect
from wheelcache import Cache, django_backend, flask_backend
for of in Cache, django_backend.WheelCache, flask_backend.WheelCache, flask_backend.TieredCache:
    for name in dir(of):
        method = getattr(of, name)
        if not name.startswith("_") and callable(method):
            parameters = inspect.signature(method).parameters.values()
            # A sentinel of Django's has an address.
            shown = [f"{each.kind.name} {each.name}={each.default!r:.15}" for each in parameters if each.name != "self"]
            print(of.__name__, name, *shown, sep=", ")
"""


@pytest.mark.deep
@pytest.mark.compiled
def test_all_methods_have_the_same_signatures_over_both_as_mocks_and_tracers_ask_for_them():
    compiled, python = run(SIGNATURES, "compiled"), run(SIGNATURES, "python")
    assert (compiled.stderr, python.stderr) == ("", "")
    assert compiled.stdout.splitlines() == python.stdout.splitlines()
    assert len(compiled.stdout.splitlines()) > 60


WITHOUT = "import sys; sys.modules['wheelcache.core._core'] = None; "
GIL_OFF = "import sys; sys._is_gil_enabled = lambda: False; "


@pytest.mark.compiled
@pytest.mark.parametrize(("how", "warnings"), [(WITHOUT, 0), (GIL_OFF, 1)], ids=["not installed", "free-threaded"])
def test_where_the_compiled_core_cannot_run_the_one_in_python_does_unless_the_other_is_asked_for(how, warnings):
    done = run(how + USE)
    assert done.stdout == "python 2\n"
    assert done.stderr.count("The compiled core cannot be used (") == warnings
    error = 'WHEELCACHE_CORE is "compiled", but the compiled core cannot be imported: '
    assert error in run(how + USE, "compiled").stderr


def test_another_core_is_an_error_that_names_both():
    done = run(USE, "rust")
    assert done.stderr.endswith('ValueError: WHEELCACHE_CORE must be "python" or "compiled", not \'rust\'\n')


REPORTS = """
import logging
logging.basicConfig(format="log: %(name)s %(levelname)s %(message)s", level=logging.INFO)

import django
from django.conf import settings
settings.configure(
    CACHES={"default": {"BACKEND": "wheelcache.django_backend.WheelCache", "OPTIONS": {"POLICY": "adaptive"}}},
    INSTALLED_APPS=["wheelcache.django_backend"], LOGGING_CONFIG=None,
)
django.setup()
from django.core import checks
from django.core.cache import cache
cache.set("key", "value")
for each in checks.run_checks():
    print("check:", each.id, each.level == checks.INFO, each.msg, each.hint)

from wheelcache.watch.dashboard.dashboard import Dashboard
from wheelcache.watch.dashboard.permissions import Permission
print("page:", Dashboard("a site", lambda: [], lambda name: []).page({Permission.VIEW_FIGURES}))
"""
COMPILER = "apt-get install gcc python3-dev"


@pytest.mark.deep
@pytest.mark.parametrize(
    ("asked", "how", "reason"),
    [
        ("", WITHOUT, COMPILER),
        pytest.param("", GIL_OFF, "PYTHON_GIL=1", marks=pytest.mark.compiled),
        ("python", "", "WHEELCACHE_CORE=python"),
    ],
    ids=["not installed", "free-threaded", "asked for"],
)
def test_the_core_in_python_is_reported_once_with_a_way_to_change_it_and_so_is_each_cache_that_asks_for_the_other(
    asked, how, reason
):
    done = run(how + REPORTS, asked)
    printed = done.stdout + done.stderr
    (by_lru, line) = re.findall(r"^log: wheelcache (INFO .*|.* evicts by LRU.*)", printed, re.MULTILINE)
    (check, of_policy) = re.findall(r"^check: (.*)", printed, re.MULTILINE)
    (page,) = re.findall(r'<footer[^>]* id="core">(.*?)</footer>', printed, re.DOTALL)
    reports = {
        line: "INFO wheelcache runs on its python core. ",
        check: "wheelcache.I001 True wheelcache runs on its python core",
        html.unescape(page): "wheelcache runs on its python core",
        by_lru: "WARNING Cache 'default' evicts by LRU: only the compiled core is adaptive",
        of_policy: "wheelcache.W009 False The cache 'default' has the POLICY 'adaptive', but evicts by LRU",
    }
    assert [found for found, begins in reports.items() if not found.startswith(begins) or reason not in found] == []


@pytest.mark.compiled
def test_the_extension_itself_refuses_to_run_without_the_interpreter_lock():
    done = run(GIL_OFF + "import wheelcache.core._core")
    assert "ImportError: the compiled core of wheelcache needs the global interpreter lock" in done.stderr


@pytest.mark.deep
def test_without_a_compiler_a_wheel_is_built_for_every_python_and_platform(tmp_path):
    """Otherwise installers would prefer it to a source distribution where there is a compiler."""
    folders = ("--bdist-dir", tmp_path / "wheel", "--dist-dir", tmp_path / "dist")
    command = ["setup.py", "build", "--build-base", tmp_path / "build", "bdist_wheel", *folders]
    done = run_python(*map(str, command), env={"CC": "/bin/false"}, stderr=subprocess.STDOUT, check=True)
    assert done.stdout.count("wheelcache has the Python core.") == 1
    (wheel,) = (tmp_path / "dist").iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (about,) = [archive.read(each).decode() for each in names if each.endswith(".dist-info/WHEEL")]
    assert "Root-Is-Purelib: true" in about
    assert {"wheelcache/core/python_core.py", "wheelcache/django_backend/migrations/0001_initial.py"} <= {*names}
    assert not [each for each in names if each.endswith((".so", ".c", ".pyx", ".pxi"))]


def test_in_the_virtual_environment_of_a_checkout_the_advice_is_to_make_it_again(tmp_path, monkeypatch):
    core = tmp_path / "wheelcache" / "core"
    core.mkdir(parents=True)
    (core / "_core.pyx").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    by_pip = f"then run {sys.executable} -m pip install --no-deps --editable {tmp_path}."
    assert how_to_compile(core).endswith(by_pip)
    (tmp_path / "Makefile").touch()
    assert how_to_compile(core).endswith(f"then run make run again in {tmp_path}.")
    monkeypatch.undo()
    assert how_to_compile(core).endswith(by_pip)


@pytest.mark.parametrize(
    ("installed", "argument"),
    [
        ({"url": "file:///src/wheelcache", "dir_info": {}}, "/src/wheelcache"),
        (
            {"url": "https://example.com/w", "vcs_info": {"vcs": "git", "requested_revision": "v1"}},
            "'wheelcache @ git+https://example.com/w@v1'",
        ),
    ],
)
def test_elsewhere_the_advice_is_the_command_that_installs_it_again(tmp_path, monkeypatch, installed, argument):
    about = tmp_path / "wheelcache-1.dist-info"
    core = tmp_path / "wheelcache" / "core"
    for each in (about, core):
        each.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: wheelcache\nVersion: 1\n")
    (about / "direct_url.json").write_text(json.dumps(installed))
    monkeypatch.syspath_prepend(tmp_path)
    options = "--force-reinstall --no-deps --no-cache-dir"
    assert how_to_compile(core).endswith(f"then run {sys.executable} -m pip install {options} {argument}.")
    # Of another installation.
    assert how_to_compile(tmp_path / "core").endswith(f"then reinstall wheelcache with the pip options {options}.")
