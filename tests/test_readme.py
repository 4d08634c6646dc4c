"""The Python in README.md and docs/ runs, and every name in it is imported or defined there.

Until there is a release, nothing sends users to a package index, where anybody may register the name.
"""

import ast
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.prepared_python import FRAMEWORKS, PreparedPython
from tests.scripts import run_python
from tests.snippets import FIRST_PAGES, FOLLOWED, PAGES, execute, follow, snippets
from wheelcache import Cache
from wheelcache.core import IMPLEMENTATION

ROOT = Path(__file__).parents[1]
SNIPPETS = {page: found for page in PAGES if (found := snippets(page))}
ALL = {place: snippet for found in SNIPPETS.values() for place, snippet in found.items()}


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Run a module as ``python -m`` does. The package is not imported before: a page must import what it uses."""
    with PreparedPython(tmp_path_factory.mktemp("python"), FRAMEWORKS) as prepared:
        yield prepared


@pytest.mark.parametrize("page", [page for page in SNIPPETS if page not in FOLLOWED], ids=lambda page: page.stem)
def test_the_snippets_of_a_page_run(page, tmp_path, python):
    done = python("-m", "tests.snippets", str(page), TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


NAMES_OF_CACHES = """
from django.core.cache import caches
from wheelcache import caches as caches_of_process
caches["default"]
try:
    import shop
except ModuleNotFoundError:
    pass
print("NAMES", *(each.name for each in caches_of_process()))
"""
VISITS = """
import django.conf
django.conf.settings.ALLOWED_HOSTS.append("testserver")
from django.test import Client, override_settings
import shop
print("VISITS", Client().get("/wheelcache/").status_code, Client().get("/wheelcache/", REMOTE_USER="ada").status_code)
with override_settings(WHEELCACHE_DASHBOARD_GUARD=None):
    login = Client().get("/wheelcache/", follow=True)
    print("VISITS", login.redirect_chain[0][0].partition("?")[0], login.status_code)
for auth in None, ("ada", "wrong"), ("ada", "secret"):
    print("VISITS", shop.app.test_client().get("/wheelcache/", auth=auth).status_code)
"""


@pytest.mark.parametrize(
    "pages",
    [
        pytest.param(FOLLOWED[:1], id="README"),
        pytest.param(FIRST_PAGES, id="the first pages", marks=pytest.mark.servers),
    ],
)
def test_a_new_user_can_follow_the_pages_literally(pages, tmp_path, python):
    def printed_by(code, word, **variables):
        command = f"python manage.py shell --verbosity 0 --command {shlex.quote(code)}"
        return re.findall(f"^{word} (.*)", execute(command, tmp_path, python, **variables), re.MULTILINE)

    execute("django-admin startproject mysite .", tmp_path, python)
    for page in pages:
        follow(page, tmp_path, python)
        if page.stem == "dashboard":
            # The dashboards are for users that log in.
            visits = printed_by(VISITS, "VISITS", DASHBOARD_PASSWORD="secret")
            assert visits == ["401 200", "/admin/login/ 200", "401", "401", "200"]
            continue
        shown = {*re.findall(r"\bcache\((\w+)\) -", page.read_text())}
        assert shown or page.name == "README.md"
        assert shown <= {*printed_by(NAMES_OF_CACHES, "NAMES")[0].split()}
        # The table that the command prints needs rich.
        extras = re.findall(r"^pip install '\.(?:/wheelcache)?\[(.*?)\]'", page.read_text(), re.MULTILINE)
        assert extras
        assert all("cli" in each.split(",") for each in extras)


def test_the_snippets_define_or_import_the_names_that_they_use(tmp_path):
    # The others continue files, and run in any case.
    by_themselves = {place: code for page in SNIPPETS if page not in FOLLOWED for place, code in SNIPPETS[page].items()}
    for place, snippet in by_themselves.items():
        (tmp_path / f"{place.replace('/', ' ')}.py").write_text(snippet)
    done = run_python("-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F821", "--quiet", tmp_path)
    assert len(by_themselves) > 40
    assert (done.stdout, done.stderr) == ("", "")


FROM_AN_INDEX = re.compile(
    r"""pypi\.org/\S*wheelcache|pip install (?:-\S+ )*["']?wheelcache(?!\S* @ git)|(?<!/)wheelcache\[(?!\w+\] @ git)"""
)


def test_nothing_sends_users_to_a_package_index():
    shipped = (each for folder in ("wheelcache", "docs", "example_project") for each in (ROOT / folder).rglob("*"))
    texts = [ROOT / "README.md", ROOT / "Makefile", ROOT / "setup.py"]
    texts += [each for each in shipped if each.suffix in (".py", ".html", ".js", ".css", ".md", ".json", ".yml")]
    assert [str(each) for each in texts if FROM_AN_INDEX.search(each.read_text())] == []


def test_the_check_of_the_core_asks_the_installed_package_also_in_a_checkout(tmp_path):
    (tmp_path / "wheelcache").mkdir()
    (tmp_path / "wheelcache" / "__init__.py").write_text("print('the checkout was imported')")
    (line,) = re.findall(r"^python (.*IMPLEMENTATION.*?)   #", (ROOT / "README.md").read_text(), re.MULTILINE)
    command = [sys.executable, *shlex.split(line)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=250)
    assert done.stdout == f"{IMPLEMENTATION}\n"


def test_the_reference_has_every_system_check():
    code = "".join(each.read_text() for each in (ROOT / "wheelcache").rglob("*checks.py"))
    page = (ROOT / "docs" / "reference" / "messages.md").read_text()
    in_page = re.findall(r"^\| `(wheelcache\.\w+)`", page, re.MULTILINE)
    assert set(re.findall(r"id=\"(wheelcache\.[EWI]\d+)", code)) == set(in_page)


def test_the_reference_has_every_name_of_cache():
    page = (ROOT / "docs" / "reference" / "cache.md").read_text()
    (members,) = re.findall(r"members: \[\n(.*?)\]", page, re.DOTALL)
    in_docstrings = {"name", "engine", "take"}
    public = {name for name in dir(Cache) if not name.startswith("_")}
    assert set(re.findall(r"\w+", members)) == public - in_docstrings


CACHE_PAGE, LOCMEM, REDIS = "cache_page over LocMemCache", "LocMemCache", "Django's RedisCache"
GET, SET = "django.core.cache.cache.get, hit", "set, str, new key into a full cache"
PAGE, HOST_GET = "a constant application", "get, small dict, by django.core.cache.cache"
MEMOIZED, FLASK_GET = "call of a function memoized by our Cache, hit", "Flask's cache.get, hit"
GUNICORN, GRANIAN, UVICORN = "page on gunicorn gthread", "page on granian (WSGI)", "page on uvicorn (ASGI)"
# Rows of README.md, with operations and peers of published rows. {0 theirs} is the peer's time of the first of these.
SHOWN = {
    "`cache.get`, hit | `LocMemCache`: {0 theirs} µs | {0 ours} µs": [(GET, LOCMEM)],
    "a `get` that hits | {0 ours} µs | {1 ours} µs | {2 ours} µs, if": [
        *((GET, LOCMEM), (HOST_GET, "diskcache"), ("get, str, with a copy", REDIS)),
    ],
    "a read of a Django session | `LocMemCache`: {0 theirs} µs | {0 ours} µs": [("read of a session", LOCMEM)],
    "cache %}`, hit | `LocMemCache`: {0 theirs} µs | {0 ours} µs": [("{% cache %}, hit", LOCMEM)],
    "on gunicorn | `LocMemCache`: {0 theirs} µs | {1 ours} µs (`HostCache`: {2 ours} µs)": [
        (GUNICORN, CACHE_PAGE),
        *((f"cache_page over {ours} on gunicorn gthread", CACHE_PAGE) for ours in ("WheelCache", "HostCache")),
    ],
    "a `set` into a full cache | `LocMemCache`: {0 theirs} µs | {0 ours} µs": [(SET, LOCMEM)],
    "share | diskcache: {0 theirs} µs | `HostCache`: {0 ours} µs": [(HOST_GET, "diskcache")],
    "that Redis has | `RedisCache`: {0 theirs} µs | `TieredCache`: {0 ours} µs": [("get, str, with a copy", REDIS)],
    "granian | `cache_page`: {0 theirs} µs | [HTTP cache](docs/how-to/pages.md): {1 ours} µs": [
        *((GRANIAN, CACHE_PAGE), (GRANIAN, PAGE)),
    ],
    "on uvicorn | `cache_page`: {0 theirs} µs | HTTP cache: {1 ours} µs": [(UVICORN, CACHE_PAGE), (UVICORN, PAGE)],
    "on gunicorn | `cache_page`: {0 theirs} µs | HTTP cache: {1 ours} µs": [(GUNICORN, CACHE_PAGE), (GUNICORN, PAGE)],
    "`SimpleCache`: {0 theirs} µs | `wheelcache.flask_backend.Cache`: {1 ours} µs": [
        *((FLASK_GET, "flask_caching.Cache over SimpleCache"), (FLASK_GET, "flask_caching.Cache")),
    ],
    "`@memoize`: {0 theirs} µs | `wheelcache.flask_backend.Cache`: {0 ours} µs": [
        (MEMOIZED, "Flask-Caching, SimpleCache"),
    ],
}


@pytest.mark.parametrize(("row", "figures"), SHOWN.items())
def test_measured_figures_of_the_readme_are_those_of_the_published_run(row, figures):
    sections = json.loads((ROOT / "docs" / "reference" / "figures.json").read_text())["sections"]
    rows = {(row["operation"], row["peer"]): row for section in sections for row in section["rows"]}
    literals, slots = re.split(r"\{\d \w+\}", row), re.findall(r"\{(\d) (\w+)\}", row)
    pattern = "([0-9.,]+)".join(map(re.escape, literals))
    shown = re.search(rf"(?<![\d.,]){pattern}", " ".join((ROOT / "README.md").read_text().split()))
    for number, (place, side) in zip(shown.groups(), slots, strict=True):
        measured = rows[figures[int(place)]]
        microseconds = measured[side] / (1000 if measured["unit"] == "ns" else 1)
        assert number == f"{microseconds:,.{len(number.partition('.')[2])}f}"


def texts_in_the_code():
    for each in (ROOT / "wheelcache").rglob("*.py"):
        for node in ast.walk(ast.parse(each.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.JoinedStr):
                yield "…".join(part.value for part in node.values if isinstance(part, ast.Constant))


def test_the_log_lines_of_the_reference_are_in_the_code():
    texts = [*texts_in_the_code()]
    table = (ROOT / "docs" / "reference" / "messages.md").read_text().partition("| Line begins with |")[2]
    cells = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
    lines = [line for cell in cells for line in re.findall(r"`(.+?)`", cell)]
    assert len(lines) > 20
    for line in lines:
        assert any(all(part.strip() in text for part in line.split("…")) for text in texts), line
