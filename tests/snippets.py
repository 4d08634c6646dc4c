"""The code in README.md and docs/.

The first pages that a new user reads are followed literally, in a new project: see ``follow``. Of the other pages, each
snippet runs by itself: ``python -m tests.snippets PAGE``. It may import from a project that is made here, ``shop`` and
``mysite``, and functions whose names begin with ``test_`` are called.

A snippet that begins with a comment such as ``# mysite/settings.py`` is the end of that file, or the whole file.
"""

import ast
import re
import shlex
import subprocess
import sys
import textwrap
import warnings
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from urllib.request import urlopen

from tests.ports import serving
from tests.scripts import ROOT, run_python
from tests.waiting import PATIENCE, until

START = ROOT / "docs" / "start"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FIRST_PAGES = [START / "django.md", START / "flask.md", START / "dashboard.md"]
"""The pages that a new user follows in this order, in one project."""
FOLLOWED = [ROOT / "README.md", *FIRST_PAGES]

FILE = re.compile(r"# ([\w/]+)\.py\n")


def snippets(page):
    """The snippets of a page, by their places."""
    return {place: code for place, language, code in blocks(page) if language == "python"}


def blocks(page):
    """Iterate over the Python and the commands of a page: place, language and code."""
    text = page.read_text()
    for found in re.finditer(r"^( *)```(python|sh)\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL):
        code = textwrap.dedent(found[3])
        place = f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, found.start()) + 2}"
        yield place, found[2], as_module(code) if found[2] == "python" else code


def as_module(snippet):
    """Return a snippet, with lines that show only options completed to a dict or a call."""
    try:
        ast.parse(snippet)
    except SyntaxError:
        lines = [line.split("  #")[0] for line in snippet.splitlines()]
        return "\n".join(f"{{{line}}}" if line.startswith('"') else f"dict({line})" for line in lines)
    return snippet


def make_module(name, **names):
    sys.modules[name] = module = ModuleType(name)
    vars(module).update(names)


def make_project():
    """Configure Django, and make the modules that the snippets import."""
    import django
    import flask
    import flask_caching
    from django.conf import settings

    from wheelcache.pages import HTTPCache

    caches = {
        "default": {
            "BACKEND": "wheelcache.django_backend.WheelCache",
            "LOCATION": "snippets",
            "OPTIONS": {"FIGURES_DIR": None},
        }
    }
    settings.configure(
        ALLOWED_HOSTS=["*"],
        CACHES=caches,
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "wheelcache.django_backend"],
        MIDDLEWARE=["wheelcache.django_backend.PageMiddleware"],
        ROOT_URLCONF="shop",
        SECRET_KEY="not secret",
    )
    django.setup()
    app = flask.Flask("shop")
    app.config.from_mapping(CACHE_TYPE="wheelcache.flask_backend.WheelCache", CACHE_OPTIONS={"figures_dir": None})
    cache = flask_caching.Cache(app)
    app.app_context().push()

    async def fetch_rates():
        return {"EUR": 1}

    names = ("compute_front_page", "compute_price", "compute_report", "load_rates", "load_user")
    functions = {name: lambda *args, name=name: name for name in names}
    make_module("shop", app=app, cache=cache, fetch_rates=fetch_rates, **functions)
    make_module("shop.models", Product=type("Product", (), {}), compute_stock=len, **functions)
    make_module("shop.settings", CACHES=caches)
    make_module("mysite")
    make_module("mysite.wsgi", pages=HTTPCache())
    make_module("mysite.middleware", AccessLog=type("AccessLog", (), {"__call__": lambda self, request: None}))
    # A package that the tests do not install.
    make_module("celery", shared_task=lambda task: task)
    make_module("mysite.accounts", account_of=lambda request: None)
    make_module("django_tenants")
    make_module("django_tenants.utils", schema_context=len)


def run(page):
    # Before any cache is used, as when pytest collects tests.
    import freezegun  # noqa: F401
    import prometheus_client

    make_project()

    for place, snippet in snippets(page).items():
        prometheus_client.REGISTRY = prometheus_client.CollectorRegistry()
        names = {"__name__": "snippet"}
        exec(compile(snippet, place, "exec"), names)
        for name, function in names.items():
            if name.startswith("test_"):
                function()


def follow(page, directory, python):
    """Follow a page literally, in a directory with the project ``mysite`` that Django makes.

    Snippets that are files end there. The others are typed into a Python shell of the project. Commands run, except the
    installation and those that ask questions. A server runs until the end of the page, and the addresses that the page
    names are visited twice.

    Args:
        python: see ``execute``.
    """
    with ExitStack() as servers:
        for _, language, code in blocks(page):
            if language == "sh":
                for command in re.findall(r"^(?:python|flask) .*", code, re.MULTILINE):
                    if SERVER.match(command):
                        port = servers.enter_context(
                            serving(server_of(command), cwd=directory, stdout=subprocess.DEVNULL)
                        )
                        for path in re.findall(r"<http://localhost:8000(/.*?)>", page.read_text()):
                            visit_twice(f"http://127.0.0.1:{port}{path}")
                    elif command.endswith(" wheelcache"):
                        # Each worker publishes its figures every three seconds.
                        until(lambda command=command: HALF in execute(command, directory, python))
                    elif not command.endswith((" shell", " createsuperuser")):
                        execute(command, directory, python)
            elif file := FILE.match(code):
                with (directory / f"{file[1]}.py").open("a") as end:
                    end.write(f"\n{code}")
                execute("python manage.py check --fail-level WARNING", directory, python)
            else:
                execute(f"python manage.py shell --verbosity 0 --command {shlex.quote(code)}", directory, python)


HALF = "50.0%"
"""The hit ratio after two visits to a page."""
SERVER = re.compile(r"python manage\.py runserver|flask --app \w+ run\b")


def server_of(command):
    """Return a command that serves a page's site, with {port} instead of the port 8000."""
    words = command.partition("#")[0].split()
    if words[0] == "flask":
        return [sys.executable, "-m", *words[: words.index("run") + 1], "--port", "{port}"]
    return [sys.executable, *words[1:], "--noreload", "{port}"]


def visit_twice(url):
    for _ in range(2):
        with urlopen(url, timeout=PATIENCE) as response:
            assert response.status == 200


MODULES = {("python", "manage.py"): "manage", ("django-admin",): "django", ("flask",): "flask"}
"""The module that is executed, by the first words of a command."""


def execute(command, directory, python, **variables):
    """Run a command of Python, Django or Flask, which must succeed. Return its output.

    Args:
        python: a ``PreparedPython``, which runs the commands of Django and Flask.
        variables: are added to the environment.
    """
    words = shlex.split(command, comments=True)
    for first, module in MODULES.items():
        if tuple(words[: len(first)]) == first:
            done = python("-m", module, *words[len(first) :], cwd=directory, **variables)
            break
    else:
        assert words[0] == "python", command
        done = run_python(*words[1:], env=variables, cwd=directory)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


if __name__ == "__main__":
    warnings.simplefilter("error")
    run(Path(sys.argv[1]))
