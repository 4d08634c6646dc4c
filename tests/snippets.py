"""The Python in README.md and docs/: ``python -m tests.snippets PAGE`` runs that of a page, each snippet by itself.

The snippets import from a project, ``shop`` and ``mysite``, which is made here. Functions whose names begin with
``test_`` are called.
"""

import ast
import re
import sys
import textwrap
from pathlib import Path
from types import ModuleType, SimpleNamespace

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def snippets(page):
    """The snippets of a page, by their places."""
    text = page.read_text()
    return {
        f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, found.start()) + 2}": as_module(textwrap.dedent(found[2]))
        for found in re.finditer(r"^( *)```python\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
    }


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

    from wheelcache.http_cache import HTTPCache

    caches = {
        "default": {
            "BACKEND": "wheelcache.django_backend.WheelCache",
            "LOCATION": "snippets",
            "OPTIONS": {"FIGURES_DIR": None, "LOG_INTERVAL": None},
        }
    }
    settings.configure(
        ALLOWED_HOSTS=["*"],
        CACHES=caches,
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "wheelcache.django_backend"],
        MIDDLEWARE=["wheelcache.django_backend.pages.PageMiddleware"],
        ROOT_URLCONF="shop",
        SECRET_KEY="not secret",
    )
    django.setup()
    app = flask.Flask("shop")
    app.config.from_mapping(
        CACHE_TYPE="wheelcache.flask_backend.WheelCache", CACHE_OPTIONS={"figures_dir": None, "log_interval": None}
    )
    cache = flask_caching.Cache(app)
    app.app_context().push()

    async def fetch_rates():
        return {"EUR": 1}

    names = ("compute_front_page", "compute_price", "compute_report", "load_rates", "load_user")
    functions = {name: lambda *args, name=name: name for name in names}
    make_module("shop", app=app, cache=cache, fetch_rates=fetch_rates, shared_task=lambda task: task, **functions)
    make_module("shop.models", Product=type("Product", (), {}), compute_stock=len, **functions)
    make_module("shop.settings", CACHES=caches)
    make_module("mysite", application=lambda environ, start_response: [])
    make_module("mysite.wsgi", pages=HTTPCache())
    make_module("mysite.accounts", account_of=lambda request: None)
    make_module(
        "flask_login", current_user=SimpleNamespace(is_authenticated=True, is_operator=True, get_id=lambda: "7")
    )


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


if __name__ == "__main__":
    run(Path(sys.argv[1]))
