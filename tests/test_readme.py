"""The Python in README.md and docs/ runs, and every name in it is imported or defined there.

Until there is a release, nothing sends users to a package index, where anybody may register the name.
"""

import ast
import json
import logging.config
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.prepared_python import FRAMEWORKS, PreparedPython
from tests.scripts import run_python
from tests.snippets import FOLLOWED, PAGES, START, execute, follow, snippets
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


@pytest.mark.parametrize("page", [page for page in FOLLOWED if not FOLLOWED[page]], ids=lambda page: page.stem)
def test_a_new_user_can_follow_a_page_literally(page, tmp_path, python):
    follow(page, tmp_path, python)
    command = f"python manage.py shell --verbosity 0 --command {shlex.quote(NAMES_OF_CACHES)}"
    printed = execute(command, tmp_path, python)
    names = re.search("^NAMES (.*)", printed, re.MULTILINE)[1].split()
    shown = {*re.findall(r"\bcache\((\w+)\) -", page.read_text())}
    assert shown or page.name == "README.md"
    assert shown <= {*names}
    # The table that the command prints needs rich.
    extras = re.findall(r"^pip install '\.(?:/wheelcache)?\[(.*?)\]'", page.read_text(), re.MULTILINE)
    assert extras
    assert all("cli" in each.split(",") for each in extras)


VISITS = """
from django.test import Client, override_settings
import shop
print("VISITS", Client().get("/wheelcache/").status_code, Client().get("/wheelcache/", REMOTE_USER="ada").status_code)
with override_settings(WHEELCACHE_DASHBOARD_GUARD=None):
    login = Client().get("/wheelcache/", follow=True)
    print("VISITS", login.redirect_chain[0][0].partition("?")[0], login.status_code)
for auth in None, ("ada", "wrong"), ("ada", "secret"):
    print("VISITS", shop.app.test_client().get("/wheelcache/", auth=auth).status_code)
"""


def test_the_dashboards_of_their_page_are_for_users_that_log_in(tmp_path, python):
    follow(START / "dashboard.md", tmp_path, python)
    settings = "import django.conf; django.conf.settings.ALLOWED_HOSTS.append('testserver')"
    command = f"python manage.py shell --verbosity 0 --command {shlex.quote(settings + VISITS)}"
    printed = execute(command, tmp_path, python, DASHBOARD_PASSWORD="secret")
    shown = re.findall("^VISITS (.*)", printed, re.MULTILINE)
    assert shown == ["401 200", "/admin/login/ 200", "401", "401", "200"]


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


def test_the_logging_snippet_silences_no_logger_that_is_there():
    (snippet,) = {each for each in ALL.values() if "LOGGING =" in each}
    names = {}
    exec(snippet, names)
    logger = logging.getLogger("there before")
    before = logging.getLogger("wheelcache")
    kept = before.handlers[:], before.level
    try:
        logging.config.dictConfig(names["LOGGING"])
        assert not logger.disabled
    finally:
        before.handlers[:], before.level = kept


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


CONSTANT, CACHE_PAGE = "a constant application", "cache_page over LocMemCache"
FLASK_GET = "Flask's cache.get, hit"
MEMOIZED, REDIS = "call of a function memoized by our Cache, hit", "Django's RedisCache"
MEASURED = {
    "page on granian": ("page on granian (WSGI)", CONSTANT, "ours"),
    "cache_page on granian": ("page on granian (WSGI)", CACHE_PAGE, "theirs"),
    "page on uvicorn": ("page on uvicorn (ASGI)", CONSTANT, "ours"),
    "cache_page on uvicorn": ("page on uvicorn (ASGI)", CACHE_PAGE, "theirs"),
    "memoized": (MEMOIZED, "Flask-Caching, SimpleCache", "ours"),
    "memoized, Flask-Caching": (MEMOIZED, "Flask-Caching, SimpleCache", "theirs"),
    "page on gunicorn": ("page on gunicorn gthread", CONSTANT, "ours"),
    "cache_page on gunicorn": ("page on gunicorn gthread", CACHE_PAGE, "theirs"),
    "page by WheelCache": ("cache_page over WheelCache on gunicorn gthread", CACHE_PAGE, "ours"),
    "page by HostCache": ("cache_page over HostCache on gunicorn gthread", CACHE_PAGE, "ours"),
    "get": ("django.core.cache.cache.get, hit", "LocMemCache", "ours"),
    "get, LocMemCache": ("django.core.cache.cache.get, hit", "LocMemCache", "theirs"),
    "session": ("read of a session", "LocMemCache", "ours"),
    "session, LocMemCache": ("read of a session", "LocMemCache", "theirs"),
    "fragment": ("{% cache %}, hit", "LocMemCache", "ours"),
    "fragment, LocMemCache": ("{% cache %}, hit", "LocMemCache", "theirs"),
    "Flask's get": (FLASK_GET, "flask_caching.Cache", "ours"),
    "SimpleCache's get": (FLASK_GET, "flask_caching.Cache over SimpleCache", "theirs"),
    "set": ("set, str, new key into a full cache", "LocMemCache", "ours"),
    "set, LocMemCache": ("set, str, new key into a full cache", "LocMemCache", "theirs"),
    "get of a copy": ("get, str, with a copy", REDIS, "ours"),
    "get of a host": ("get, small dict, by django.core.cache.cache", "diskcache", "ours"),
    "get, diskcache": ("get, small dict, by django.core.cache.cache", "diskcache", "theirs"),
    "get, Redis": ("get, str, with a copy", REDIS, "theirs"),
}
SHOWN = [
    ("README.md", "a `get` that hits | {get} µs | {get of a host} µs | {get of a copy} µs, if"),
    ("README.md", "`cache.get`, hit | `LocMemCache`: {get, LocMemCache} µs | {get} µs"),
    ("README.md", "a read of a Django session | `LocMemCache`: {session, LocMemCache} µs | {session} µs"),
    ("README.md", "cache %}`, hit | `LocMemCache`: {fragment, LocMemCache} µs | {fragment} µs"),
    ("README.md", "on gunicorn | `LocMemCache`: {cache_page on gunicorn} µs | {page by WheelCache} µs"),
    ("README.md", "{page by WheelCache} µs (`HostCache`: {page by HostCache} µs)"),
    ("README.md", "a `set` into a full cache | `LocMemCache`: {set, LocMemCache} µs | {set} µs"),
    ("README.md", "share | diskcache: {get, diskcache} µs | `HostCache`: {get of a host} µs"),
    ("README.md", "that Redis has | `RedisCache`: {get, Redis} µs | `TieredCache`: {get of a copy} µs"),
    (
        "README.md",
        "granian | `cache_page`: {cache_page on granian} µs | [HTTP cache](docs/how-to/pages.md): {page on granian} µs",
    ),
    ("README.md", "on uvicorn | `cache_page`: {cache_page on uvicorn} µs | HTTP cache: {page on uvicorn} µs"),
    ("README.md", "on gunicorn | `cache_page`: {cache_page on gunicorn} µs | HTTP cache: {page on gunicorn} µs"),
    ("README.md", "`SimpleCache`: {SimpleCache's get} µs | `wheelcache.flask_backend.Cache`: {Flask's get} µs"),
    ("README.md", "`@memoize`: {memoized, Flask-Caching} µs | `wheelcache.flask_backend.Cache`: {memoized} µs"),
]


@pytest.mark.parametrize(("page", "template"), SHOWN)
def test_measured_figures_are_those_of_the_published_run(page, template):
    sections = json.loads((ROOT / "docs" / "reference" / "figures.json").read_text())["sections"]
    rows = {(row["operation"], row["peer"]): row for section in sections for row in section["rows"]}
    text, *fields = re.split(r"\{(.+?)\}", template)
    names, literals = fields[::2], fields[1::2]
    pattern = re.escape(text) + "".join(r"([\d.,]+)" + re.escape(literal) for literal in literals)
    shown = re.search(rf"(?<![\d.,]){pattern}", " ".join((ROOT / page).read_text().split()))
    measured = []
    for number, name in zip(shown.groups(), names, strict=True):
        operation, peer, side = MEASURED[name]
        row = rows[operation, peer]
        microseconds = row[side] / (1000 if row["unit"] == "ns" else 1)
        measured.append(f"{microseconds:,.{len(number.partition('.')[2])}f}")
    assert list(shown.groups()) == measured


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
