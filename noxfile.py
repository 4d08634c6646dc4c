"""Run the tests of the backends over sets of dependencies, for each Python from 3.11 to 3.14 that this machine has.

``nox`` runs all of them, and ``nox --session "tests-3.11(django='5.2', flask_caching='2.3')"`` one: see ``nox --list``.
"""

import nox

nox.options.envdir = ".fetched/nox"
nox.options.error_on_missing_interpreters = False

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
DJANGO = {"5.2": "Django==5.2", "newest": "Django"}
FLASK_CACHING = {"2.3": "Flask-Caching==2.3.0", "newest": "Flask-Caching"}

IMPORTED = [
    *(
        "django-debug-toolbar",
        "django-redis",
        "Flask-SQLAlchemy",
        "Flask-WTF",
        "freezegun",
        "hypothesis",
        "psutil",
        "psycopg[binary]",
    ),
    *("pymemcache", "pytest", "pytest-django", "pytest-timeout", "pytest-xdist", "pytest-xprocess", "time-machine"),
    "waitress",
]
"""The packages that the tests of the backends import."""

TESTS = ["tests/backends", "tests/django_backend", "tests/flask_backend", "tests/platforms"]


@nox.session(python=PYTHONS)
@nox.parametrize("flask_caching", list(FLASK_CACHING))
@nox.parametrize("django", list(DJANGO))
def tests(session, django, flask_caching):
    session.install("--editable", ".[cli,redis]", DJANGO[django], FLASK_CACHING[flask_caching], *IMPORTED)
    chosen = session.posargs or ["--hypothesis-profile", "quick", "-m", "not servers and not deep", *TESTS]
    session.run("python", "-m", "pytest", "-p", "no:cacheprovider", "--numprocesses", "3", *chosen)
