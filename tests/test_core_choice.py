"""Which core runs: the compiled one, unless it is not there or the other is asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
USE = """
import wheelcache, wheelcache.core
cache = wheelcache.Cache()
cache.set(1, 2)
print(wheelcache.core.IMPLEMENTATION, cache.get(1))
"""


def run(script, asked=None):
    environment = {name: value for name, value in os.environ.items() if name != "WHEELCACHE_CORE"}
    if asked is not None:
        environment["WHEELCACHE_CORE"] = asked
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("asked", "runs"), [(None, "compiled"), ("", "compiled"), ("compiled", "compiled"), ("python", "python")]
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


def test_all_methods_have_the_same_signatures_over_both_as_mocks_and_tracers_ask_for_them():
    compiled, python = run(SIGNATURES, "compiled"), run(SIGNATURES, "python")
    assert (compiled.stderr, python.stderr) == ("", "")
    assert compiled.stdout.splitlines() == python.stdout.splitlines()
    assert len(compiled.stdout.splitlines()) > 60


WITHOUT = "import sys; sys.modules['wheelcache.core._core'] = None; "
GIL_OFF = "import sys; sys._is_gil_enabled = lambda: False; "


@pytest.mark.parametrize("how", [WITHOUT, GIL_OFF], ids=["not installed", "free-threaded"])
def test_where_the_compiled_core_cannot_run_the_one_in_python_does(how):
    assert run(how + USE + "print(wheelcache.core.CoreClass.__name__)").stdout == "python 2\nPythonCore\n"


@pytest.mark.parametrize("how", [WITHOUT, GIL_OFF], ids=["not installed", "free-threaded"])
def test_where_the_compiled_core_cannot_run_and_is_asked_for_an_error_says_so(how):
    assert "ImportError: WHEELCACHE_CORE is compiled, and there is no such core: " in run(how + USE, "compiled").stderr


def test_another_core_is_an_error_that_names_both():
    done = run(USE, "rust")
    assert done.stderr.endswith('ValueError: WHEELCACHE_CORE must be "python" or "compiled", not \'rust\'\n')


def test_the_extension_itself_refuses_to_run_without_the_interpreter_lock():
    done = run(GIL_OFF + "import wheelcache.core._core")
    assert "ImportError: the compiled core of wheelcache needs the global interpreter lock" in done.stderr


def test_without_a_compiler_the_build_succeeds_and_says_once_that_the_core_is_in_python(tmp_path):
    done = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--build-lib", tmp_path, "--build-temp", tmp_path / "objects"],
        env={**os.environ, "CC": "/bin/false"},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("wheelcache has the Python core.") == 1
    assert not [*tmp_path.rglob("*.so")]
