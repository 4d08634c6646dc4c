"""The picture in docs/architecture.md shows the imports that there are, and these keep the rules of that page."""

import ast
import inspect
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from tests.scripts import run
from wheelcache import Cache
from wheelcache.engine.calls import Engine

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "wheelcache"
PAGE = ROOT / "docs" / "architecture.md"

FRAMEWORKS = {"asgiref", "cachelib", "click", "django", "flask", "flask_caching", "werkzeug"}


@cache
def imported_by(path):
    """Return the modules and names that a file imports, including those for type checkers."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno} imports relatively"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def unit_of(name):
    """The folder or file in ``wheelcache/`` that a dotted name is in; None if it is of another package."""
    package, _, rest = name.partition(".")
    return rest.partition(".")[0] or package if package == "wheelcache" else None


@cache
def imports():
    """Return, for each folder and file in ``wheelcache/``, the others that it imports."""
    found = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        unit = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if unit != "__init__":
            found[unit] |= {unit_of(name) for name in imported_by(path)} - {unit, None}
    return dict(found)


def leaves():
    return {unit for unit, imported in imports().items() if not imported}


@cache
def picture():
    """Return the node of the picture that shows each folder or file, the nodes in its frames, and the arrows."""
    (text,) = re.findall(r"^```mermaid\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    nodes, frames, arrows, frame = {}, {}, set(), None
    for line in map(str.strip, text.splitlines()):
        if found := re.fullmatch(r"subgraph (\w+).*", line):
            frame = found[1]
            frames[frame] = set()
        elif line == "end":
            frame = None
        elif found := re.fullmatch(r"(\w+)\[\"(.*)\"\]", line):
            nodes |= dict.fromkeys(re.findall(r"(\w+)(?:/|\.py)", found[2]), found[1])
            if frame is not None:
                frames[frame].add(found[1])
        elif found := re.fullmatch(r"(\w+) --> ([\w &]+)", line):
            arrows |= {(found[1], to) for to in found[2].split(" & ")}
        else:
            assert line in ("", "flowchart TD"), f"what is {line!r}?"
    # An arrow from a frame is one from each node in it.
    arrows = {(node, to) for start, to in arrows for node in frames.get(start, [start])}
    return nodes, frames, arrows


def test_the_picture_shows_every_folder_and_file_but_those_that_import_nothing():
    nodes, _, _ = picture()
    assert set(nodes) == set(imports()) - leaves()


def test_the_page_names_the_files_that_import_nothing():
    (names,) = re.findall(r"((?:`\w+\.py`(?:,\s|\sand\s)?)+)\simport nothing", PAGE.read_text())
    assert set(re.findall(r"`(\w+)\.py`", names)) == leaves()


def test_the_arrows_of_the_picture_are_the_imports_that_there_are():
    nodes, _, arrows = picture()
    existing = {
        (nodes[unit], nodes.get(each, each)) for unit, imported in imports().items() for each in imported - leaves()
    }
    assert arrows == {(start, to) for start, to in existing if start != to}


def test_the_arrows_of_the_picture_make_no_circle():
    _, _, arrows = picture()
    while arrows:
        # Remove the nodes that no other node imports, layer by layer.
        top = {start for start, _ in arrows} - {to for _, to in arrows}
        assert top, f"a circle: {arrows}"
        arrows = {arrow for arrow in arrows if arrow[0] not in top}


@cache
def imported_modules():
    """Return, for each module of the package, the others that it imports."""
    dotted = (path.relative_to(ROOT).with_suffix("") for path in PACKAGE.rglob("*.py"))
    modules = {".".join(path.parts).removesuffix(".__init__"): ROOT / path.with_suffix(".py") for path in dotted}
    return {
        module: {name if name in modules else name.rpartition(".")[0] for name in imported_by(path)} & set(modules)
        for module, path in modules.items()
    }


def test_no_modules_import_each_other_in_a_circle():
    left = dict(imported_modules())
    # Remove the modules that import no other one, layer by layer.
    while bottom := {module for module, imported in left.items() if not (imported - {module}) & set(left)}:
        left = {module: imported for module, imported in left.items() if module not in bottom}
    assert left == {}


def test_the_engine_and_its_parts_import_nothing_of_observability():
    reached, left = set(), ["wheelcache.engine.calls"]
    while left:
        reached.add(module := left.pop())
        left += imported_modules()[module] - reached - {"wheelcache"}
    assert "wheelcache.engine.cache_parts" in reached
    _, frames, _ = picture()
    parts = {module for module in imported_modules() if unit_of(module) in frames["parts"] - {"observability"}}
    named = {name for module in reached | parts for name in imported_modules()[module]}
    assert sorted(name for name in named if unit_of(name) == "observability") == []


# The surface for layers.


def surface():
    engine = Cache(log_interval=None, keep_history=False).engine
    return {name: getattr(engine, name) for name in dir(engine) if not name.startswith("_")}


def test_the_surface_for_layers_consists_of_at_most_40_calls():
    found = surface()
    assert [name for name, value in found.items() if not (callable(value) or type(value) is bool)] == []
    assert len(found) <= 40


def test_every_call_of_the_surface_is_documented():
    attributes = inspect.getdoc(Engine).partition("Attributes:")[2]
    listed = {name for names in re.findall(r"^    ([\w, ]+):", attributes, re.MULTILINE) for name in names.split(", ")}
    methods = {name for name, value in vars(Engine).items() if name[0] != "_" and value.__doc__}
    assert listed | methods == set(surface())


def test_the_page_of_the_surface_shows_the_calls_of_each_part_that_it_names():
    page = (ROOT / "docs" / "reference" / "engine.md").read_text()
    shown = dict(re.findall(r"^::: [\w.]+\.(\w+)\n((?: .*\n)*)", page, re.MULTILINE))
    calls = [(type(call.__self__).__name__, call.__name__) for call in surface().values() if hasattr(call, "__self__")]
    assert [
        f"{part}.{name}"
        for part, name in calls
        if part != "Engine" and part in shown and name not in re.findall(r"\w+", shown[part])
    ] == []


def test_layers_use_the_whole_surface_and_reach_no_part_of_a_cache():
    used, reaches = set(), []
    public = set(surface()) | {name for name in dir(Cache) if not name.startswith("_")}
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE)
        if str(place) in ("cache.py", "cache_parts.py", "engine.py"):
            continue
        assert not any(name.startswith("wheelcache.engine.cache_parts") for name in imported_by(path)), place
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                owner = ast.unparse(node.value).rpartition(".")[2]
                used |= {node.attr} if owner in ("engine", "_engine") else set()
                if node.attr in ("parts", "_parts") or (owner in ("engine", "_engine") and node.attr not in public):
                    reaches.append(f"{place}:{node.lineno}: {ast.unparse(node)}")
    assert reaches == []
    assert set(surface()) - used == set(), "no layer needs it"


def test_only_the_layers_above_the_cache_import_it():
    _, _, arrows = picture()
    above = {"backends", "host_cache", "http_cache", "layers", "near_cache"}
    assert {start for start, to in arrows if to == "Cache"} == above


def test_no_part_imports_a_backend():
    _, _, arrows = picture()
    assert "backends" not in {to for _, to in arrows}


@pytest.mark.parametrize("folder", ["core", "runtime"])
def test_core_and_runtime_import_no_other_part(folder):
    assert imports()[folder] <= leaves()


def test_the_core_imports_nothing_but_errors_the_clock_and_the_checks_of_options():
    assert imports()["core"] == {"errors", "machine_clock", "options"}


def test_only_the_backends_import_a_framework():
    nodes, _, _ = picture()
    importing = {
        path.relative_to(PACKAGE).parts[0]
        for path in PACKAGE.rglob("*.py")
        if any(name.partition(".")[0] in FRAMEWORKS for name in imported_by(path))
    }
    assert importing == {"django_backend", "flask_backend"}
    assert {nodes[folder] for folder in importing} == {"backends"}


COMPILED = re.compile(r"^( {4})?(?:cdef )?class (\w+)|^( {4})?(?:cdef|def) [^=(\n]*?(\w+)\(", re.MULTILINE)


def defined_in(path):
    """The classes and functions of a file, methods as ``Class.method``."""
    if path.suffix != ".py":
        owner = ""
        for _, name, indent, function in COMPILED.findall(path.read_text()):
            owner = name or owner
            yield name or (f"{owner}.{function}" if indent else function)
        return
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        if isinstance(node, ast.ClassDef):
            methods = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
            yield from (f"{node.name}.{each.name}" for each in methods)


def test_what_the_journeys_name_is_in_the_files_that_they_name():
    """A journey is numbered steps and paragraphs, of which each names files and what is in them."""
    passages = re.split(r"\n\n|\n(?=\d+\. )", PAGE.read_text().partition("## Journeys")[2])
    has_files = False
    for passage in passages:
        files = re.findall(r"`([\w/]+\.(?:py|pyx|pxi))`", passage)
        names = re.findall(r"`([A-Z]\w*[a-z]\w*(?:\.\w+)?)`", passage)
        defined = {name for file in files for name in defined_in(PACKAGE / file)}
        assert not files or set(names) <= defined, passage
        has_files = has_files or bool(files)
    assert has_files


def test_what_the_page_calls_a_part_of_a_file_is_in_that_file():
    named = re.findall(r"`([\w.]*[a-z][\w.]*)`\s+of\s+`([\w/]+\.(?:py|pyx|pxi))`", PAGE.read_text())
    assert named
    assert [(name, file) for name, file in named if name not in defined_in(PACKAGE / file)] == []


# What a process with caches in memory loads.

HEART = {
    *("backend_access", "busiest", "cache", "cache_parts", "codec", "core", "engine", "errors"),
    *("glob_pattern", "keys", "layers", "lazy_names", "leases", "loading", "machine_clock", "observability"),
    *("option_table", "options"),
    *("readable", "runtime", "saved_timers", "stats", "timer_wheel", "timers", "transactions", "turns"),
    "writing",
}
IN_DJANGO = """
import django.db, django.utils.log, sqlparse
from django.conf import settings
settings.configure(INSTALLED_APPS=APPS, CACHES={"default": {"BACKEND": "wheelcache.django_backend.WheelCache"}})
before = set(sys.modules)
django.setup()
from django.core.cache import cache, caches
from wheelcache.django_backend import memoize
assert caches["default"].get("key") is cache.get("key") is memoize()(lambda: None)() is None
"""
IN_FLASK = """
import flask, flask_caching, wheelcache.flask_backend
before = set(sys.modules) - {name for name in sys.modules if name.startswith("wheelcache")}
app = flask.Flask("app")
app.config["CACHE_TYPE"] = "wheelcache.flask_backend.WheelCache"
cache = CACHE(app)
with app.app_context():
    assert cache.get("key") is cache.memoize()(lambda: None)() is None
"""
LOADED = """
known = {name.partition(".")[0] for name in before} | set(sys.stdlib_module_names)
new = [name for name in set(sys.modules) - before if name.partition(".")[0] not in known]
print(*[name for name in new if getattr(sys.modules[name], "__file__", None)])
"""


@pytest.mark.parametrize(
    ("code", "own"),
    [
        (f"APPS = []{IN_DJANGO}", {"django_backend"}),
        (
            f"APPS = ['wheelcache.django_backend']{IN_DJANGO}",
            {"django_backend", "observability.dashboard"},
        ),
        (IN_FLASK.replace("CACHE(", "flask_caching.Cache("), {"flask_backend"}),
        (IN_FLASK.replace("CACHE(", "wheelcache.flask_backend.Cache("), {"flask_backend"}),
    ],
    ids=["Django", "Django, with the app", "Flask-Caching", "Flask, our Cache"],
)
def test_a_backend_in_memory_loads_the_heart_of_the_package_and_nothing_else(code, own):
    """No part of the HTTP cache or of the copies of a store, and no other package, such as ``redis``."""
    loaded = run(f"import sys\n{code}{LOADED}").split()
    modules = [name.removeprefix("wheelcache.") for name in loaded if name.startswith("wheelcache.")]
    # A module, or the folder that it is in.
    assert {each if is_unit(each) else each.rpartition(".")[0] for each in modules} == HEART | own
    assert {name.partition(".")[0] for name in loaded if name[0] != "_"} == {"wheelcache"}


def is_unit(name):
    return "." not in name or (PACKAGE / name.replace(".", "/")).is_dir()
