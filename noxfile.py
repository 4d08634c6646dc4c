"""Run the tests of the backends over sets of dependencies, for each Python from 3.11 to 3.14 that this machine has.

``nox`` runs all of them, and ``nox --session "tests-3.11(django='5.2', flask_caching='2.3')"`` one: see ``nox --list``.
``nox --session prereleases`` reports what will break with the next Django, on the newest Python of this machine.
"""

import subprocess
from pathlib import Path

import nox

nox.options.envdir = ".fetched/nox"
nox.options.error_on_missing_interpreters = False

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
DJANGO = {"5.2": "Django==5.2", "newest": "Django"}
# Flask 2.3 works with Werkzeug 2 only.
FLASK_CACHING = {"2.3": ["Flask-Caching==2.3.0", "Flask==2.3.0", "Werkzeug<3"], "newest": ["Flask-Caching"]}

IMPORTED = [
    *(
        "django-redis",
        "Flask-SQLAlchemy",
        "Flask-WTF",
        "freezegun",
        "hypothesis",
        "psutil",
        "psycopg[binary]",
    ),
    *("msgspec", "orjson"),
    *("pymemcache", "pytest", "pytest-django", "pytest-timeout", "pytest-xdist", "pytest-xprocess", "time-machine"),
    "waitress",
]
"""The packages that the tests of the backends import."""

OF_GUESTS = sorted(str(path) for path in Path("tests").glob("*/on_*") if path.is_dir())
"""The tests of the guests that meet a framework."""

TESTS = ["tests/backends", "tests/django_backend", "tests/flask_backend", *OF_GUESTS, "tests/platforms"]
CHOSEN = ["--hypothesis-profile", "quick", "-m", "not servers and not deep and not alone", *TESTS]
PYTEST = ["python", "-m", "pytest", "-p", "no:cacheprovider", "--numprocesses", "4"]


@nox.session(python=PYTHONS)
@nox.parametrize("flask_caching", list(FLASK_CACHING))
@nox.parametrize("django", list(DJANGO))
def tests(session, django, flask_caching):
    session.install("--editable", ".[cli,redis]", DJANGO[django], *FLASK_CACHING[flask_caching], *IMPORTED)
    session.run(*PYTEST, *(session.posargs or CHOSEN))


def newest_python():
    """Return the version of the newest Python that runs here. A program may be there and not run: see pyenv."""
    for minor in range(29, 11, -1):
        command = ["env", f"python3.{minor}", "--version"]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return f"3.{minor}"
    return "3.11"


@nox.session(python=[newest_python()])
def prereleases(session):
    """Report the failures with a Django that is not released yet. They do not fail the session."""
    session.install("--pre", "Django")
    session.install("--editable", ".[cli,redis]", "Flask-Caching", *IMPORTED)
    session.run(*PYTEST, *(session.posargs or CHOSEN), success_codes=range(256))
