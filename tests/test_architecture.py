"""The picture in docs/architecture.md shows the imports that there are, and these keep the rules of that page."""

import ast
import inspect
import re
from functools import cache
from pathlib import Path

import pytest

from tests.guests import has
from tests.names_for_guests import NAMES
from tests.scripts import run
from wheelcache import Cache
from wheelcache.engine.calls import Engine
from wheelcache.engine.guests import GUESTS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "wheelcache"
PAGE = ROOT / "docs" / "architecture.md"

FRAMEWORKS = {"asgiref", "cachelib", "click", "django", "flask", "flask_caching", "werkzeug"}


BACKENDS = {"django_backend", "flask_backend"}

FOR_EDITORS = {f"wheelcache.{backend}" for backend in BACKENDS}
"""Packages with names of guests, which are found at the first access: editors see the imports under TYPE_CHECKING."""


@cache
def parsed(path):
    return ast.parse(path.read_text())


@cache
def imported_by(path, *, for_editors=True):
    """Return the modules and names that a file imports anywhere, with those for type checkers or without."""
    found = []
    for statement in parsed(path).body:
        if not for_editors and isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            continue
        for node in ast.walk(statement):
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
def imported_modules():
    """Return, for each module of the package, the others that it imports."""
    dotted = (path.relative_to(ROOT).with_suffix("") for path in PACKAGE.rglob("*.py"))
    modules = {".".join(path.parts).removesuffix(".__init__"): ROOT / path.with_suffix(".py") for path in dotted}
    return {
        module: {name if name in modules else name.rpartition(".")[0] for name in imported_by(path)} & set(modules)
        for module, path in modules.items()
    }


def file_of(module):
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def test_no_modules_import_each_other_in_a_circle():
    left = dict(imported_modules())
    # Remove the modules that import no other one, layer by layer.
    while bottom := {module for module, imported in left.items() if not (imported - {module}) & set(left)}:
        left = {module: imported for module, imported in left.items() if module not in bottom}
    assert left == {}


WHOLE = {"wheelcache", "wheelcache.core"}
"""Packages that a process has imported as a whole before it starts threads that import parts of them."""


def test_no_package_imports_its_own_modules_at_its_import():
    """See ``test_imports_in_threads``."""
    found = {
        path.relative_to(ROOT).parent.as_posix().replace("/", "."): imported_by(path, for_editors=False)
        for path in PACKAGE.rglob("__init__.py")
    }
    assert {name for name, names in found.items() if any(each.startswith(f"{name}.") for each in names)} == WHOLE


# The heart and its guests.


def of_guests(names):
    return {unit_of(name) for name in names} & set(GUESTS)


def test_the_heart_imports_no_guest():
    found = {
        module: of_guests(imported_by(file_of(module), for_editors=module not in FOR_EDITORS))
        for module in imported_modules()
        if unit_of(module) not in GUESTS
    }
    assert {module: guests for module, guests in found.items() if guests} == {}


@cache
def used_by_guests():
    """Return the names of the heart that guests use, by module."""
    modules, used = imported_modules(), {}
    of_guests = (name for module in modules if unit_of(module) in GUESTS for name in imported_by(file_of(module)))
    for name in of_guests:
        if unit_of(name) not in {*GUESTS, None}:
            module, _, last = (name, "", "itself") if name in modules else name.rpartition(".")
            used.setdefault(module.removeprefix("wheelcache."), set()).add(last)
    return used


def test_guests_use_the_names_of_the_heart_that_are_listed():
    assert used_by_guests() == {module: set(names.split()) for module, names in NAMES.items()}


def documented(module):
    """Return the names of a module that have a docstring, or a line of their own in that of the module."""
    tree = parsed(file_of(f"wheelcache.{module}"))
    names = set(re.findall(r"\w+", ast.get_docstring(tree).partition("Attributes:")[2])) | {"itself"}
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names |= {node.name} if ast.get_docstring(node) else set()
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return names


def test_each_name_of_the_heart_that_guests_use_has_a_docstring():
    missing = {module: names - documented(module) for module, names in used_by_guests().items()}
    assert {module: names for module, names in missing.items() if names} == {}


def test_every_guest_has_a_folder_and_tests():
    assert [guest for guest in GUESTS if not (PACKAGE / guest).is_dir() or not (ROOT / "tests" / guest).is_dir()] == []


def test_the_map_of_each_folder_names_files_that_it_has():
    """The docstring of a folder lists its modules: the names at the beginning of each line of its list."""
    listed = {}
    for guest in (*GUESTS, "engine", "runtime"):
        folder = PACKAGE / guest
        lines = re.findall(r"^- (``.*?): ", ast.get_docstring(parsed(folder / "__init__.py")), re.MULTILINE)
        names = re.findall(r"``([\w/]+)``", " ".join(lines))
        listed[guest] = [
            each for each in names if not (folder / each).is_dir() and not (folder / f"{each}.py").exists()
        ]
        assert names
    assert {folder: names for folder, names in listed.items() if names} == {}


# The picture.


@cache
def picture():
    """Return the node or frame of the picture that shows each folder or file, and the arrows between them."""
    (text,) = re.findall(r"^```mermaid\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    nodes, arrows, frame = {}, set(), None
    for line in map(str.strip, text.splitlines()):
        if found := re.fullmatch(r"subgraph (\w+).*", line):
            frame = found[1]
        elif line == "end":
            frame = None
        elif found := re.fullmatch(r"(\w+)\[\"(.*)\"\]", line):
            nodes |= dict.fromkeys(re.findall(r"(\w+)(?:/|\.py)", found[2]), frame or found[1])
        elif found := re.fullmatch(r"(\w+) --> ([\w &]+)", line):
            arrows |= {(found[1], to) for to in found[2].split(" & ")}
        else:
            assert line in ("", "flowchart TD"), f"what is {line!r}?"
    return nodes, arrows


def test_the_picture_shows_every_folder_and_file_but_those_that_import_nothing():
    units = {unit_of(module) for module in imported_modules()} - {"wheelcache"}
    assert set(picture()[0]) == units - {"errors"}


def test_the_arrows_of_the_picture_are_the_imports_that_there_are():
    nodes, arrows = picture()
    existing = {
        (nodes[unit_of(module)], nodes[unit_of(name)])
        for module, imported in imported_modules().items()
        for name in imported - leaves()
        if module != "wheelcache" and name != "wheelcache" and not is_for_editors(module, name)
    }
    assert {(start, to) for start, to in existing if start != to} == arrows


def is_for_editors(module, name):
    return module in FOR_EDITORS and unit_of(name) in GUESTS


@cache
def leaves():
    """The modules that import nothing of the package but ``errors``, which every module may import."""
    return {module for module, imported in imported_modules().items() if imported <= {"wheelcache.errors"}}


# The surface for layers.


def surface():
    engine = Cache().engine
    return {name: getattr(engine, name) for name in dir(engine) if not name.startswith("_")}


def test_the_surface_for_layers_consists_of_at_most_40_calls():
    found = surface()
    assert [name for name, value in found.items() if not (callable(value) or type(value) is bool)] == ["observed"]
    assert len(found) <= 40


def test_every_call_of_the_surface_is_documented():
    attributes = inspect.getdoc(Engine).partition("Attributes:")[2]
    listed = {name for names in re.findall(r"^    ([\w, ]+):", attributes, re.MULTILINE) for name in names.split(", ")}
    methods = {name for name, value in vars(Engine).items() if name[0] != "_" and value.__doc__}
    assert listed | methods == set(surface())


def test_layers_use_the_whole_surface_and_reach_no_part_of_a_cache():
    used, reaches = set(), []
    public = set(surface()) | {name for name in dir(Cache) if not name.startswith("_")}
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE)
        if str(place) in ("cache.py", "engine/cache_parts.py", "engine/calls.py", "engine/observed.py"):
            continue
        assert not any(name.startswith("wheelcache.engine.cache_parts") for name in imported_by(path)), place
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Attribute):
                owner = ast.unparse(node.value).rpartition(".")[2]
                used |= {node.attr} if owner in ("engine", "_engine") else set()
                if node.attr in ("parts", "_parts") or (owner in ("engine", "_engine") and node.attr not in public):
                    reaches.append(f"{place}:{node.lineno}: {ast.unparse(node)}")
    assert reaches == []
    assert set(surface()) - used == set(), "no layer needs it"


def test_the_parts_of_a_cache_do_not_import_it():
    importing = {name for name, imported in imported_modules().items() if "wheelcache.cache" in imported}
    layers = {"wheelcache.engine.backend_access", "wheelcache.engine.in_memory", "wheelcache.engine.layer"}
    assert {name for name in importing if unit_of(name) in ("core", "engine")} == layers


@pytest.mark.parametrize("folder", ["wheelcache.core", "wheelcache.runtime"])
def test_core_and_runtime_import_no_other_part(folder):
    for module, imported in imported_modules().items():
        if module.startswith(folder):
            assert {name for name in imported - leaves() if not name.startswith(folder)} == set(), module


def test_core_and_engine_import_no_framework():
    importing = {
        unit_of(module)
        for module in imported_modules()
        if any(name.partition(".")[0] in FRAMEWORKS for name in imported_by(file_of(module)))
    }
    assert importing >= BACKENDS
    assert importing <= BACKENDS | set(GUESTS)


def lacks(name, file):
    """Return whether a file of the package lacks a part of a name, as in ``Class.method``."""
    return not all(re.search(rf"\b{part}\b", (PACKAGE / file).read_text()) for part in name.split("."))


def test_what_the_journeys_name_is_in_the_files_that_they_name():
    """A journey is numbered steps and paragraphs, of which each names files and what is in them."""
    passages = re.split(r"\n\n|\n(?=\d+\. )", PAGE.read_text().partition("## Three journeys")[2])
    files = [re.findall(r"`([\w/]+\.(?:py|pyx|pxi))`", passage) for passage in passages]
    assert any(files)
    for passage, named in zip(passages, files, strict=True):
        names = re.findall(r"`([A-Z]\w*[a-z]\w*(?:\.\w+)?)`", passage) if named else []
        assert [name for name in names if all(lacks(name, file) for file in named)] == [], passage


def test_what_the_page_calls_a_part_of_a_file_is_in_that_file():
    named = re.findall(r"`([\w.]*[a-z][\w.]*)`\s+of\s+`([\w/]+\.(?:py|pyx|pxi))`", PAGE.read_text())
    assert named
    assert [(name, file) for name, file in named if lacks(name, file)] == []


# The modules that a process with caches in memory loads.

WITHOUT_APP = "import logging; logging.getLogger('wheelcache').setLevel('ERROR')\n"
"""A site without the app gets a warning."""

IN_DJANGO = """
import django.db, django.utils.log, sqlparse
from django.conf import settings
wheel = {"BACKEND": "wheelcache.django_backend.WheelCache", "OPTIONS": {"FIGURES_DIR": None}}
settings.configure(INSTALLED_APPS=APPS, CACHES={"default": wheel})
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
app.config |= {"CACHE_TYPE": "wheelcache.flask_backend.WheelCache", "CACHE_OPTIONS": {"figures_dir": None}}
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
    "code",
    [
        f"{WITHOUT_APP}APPS = []{IN_DJANGO}",
        f"APPS = ['wheelcache.django_backend']{IN_DJANGO}",
        IN_FLASK.replace("CACHE(", "flask_caching.Cache("),
        IN_FLASK.replace("CACHE(", "wheelcache.flask_backend.Cache("),
    ],
    ids=["Django", "Django, with the app", "Flask-Caching", "Flask, our Cache"],
)
def test_a_backend_in_memory_loads_no_guest_but_that_of_its_waits_and_no_other_package(code):
    loaded = run(f"import sys\n{code}{LOADED}").split()
    assert "wheelcache.engine.calls" in loaded
    assert of_guests(loaded) == ({"fill_waits"} if has("fill_waits") else set())
    assert {name.partition(".")[0] for name in loaded if name[0] != "_"} == {"wheelcache"}
