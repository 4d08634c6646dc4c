"""The picture in docs/architecture.md shows the imports that there are, and these keep the rules of that page."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "wheelcache"
PAGE = ROOT / "docs" / "architecture.md"

FRAMEWORKS = {"asgiref", "cachelib", "click", "django", "flask", "flask_caching", "werkzeug"}


@cache
def imported_by(path):
    """The modules and names that a file imports, those for type checkers aside."""
    found = []
    todo = [ast.parse(path.read_text())]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            todo += node.orelse
            continue
        todo += ast.iter_child_nodes(node)
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
    (names,) = re.findall(r"((?:`\w+\.py`(?:, | and )?)+) import nothing", PAGE.read_text())
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


def test_only_the_layers_above_the_cache_import_it():
    _, _, arrows = picture()
    assert {start for start, to in arrows if to == "Cache"} == {"backends", "http_cache", "near_cache"}


def test_no_part_imports_a_backend():
    _, _, arrows = picture()
    assert "backends" not in {to for _, to in arrows}


@pytest.mark.parametrize("folder", ["core", "runtime"])
def test_core_and_runtime_import_no_other_part(folder):
    assert imports()[folder] <= leaves()


def test_the_core_imports_nothing_but_errors_and_the_checks_of_options():
    assert imports()["core"] == {"errors", "options"}


def test_only_the_backends_import_a_framework():
    nodes, _, _ = picture()
    importing = {
        path.relative_to(PACKAGE).parts[0]
        for path in PACKAGE.rglob("*.py")
        if any(name.partition(".")[0] in FRAMEWORKS for name in imported_by(path))
    }
    assert importing == {"django_backend", "flask_backend"}
    assert {nodes[folder] for folder in importing} == {"backends"}


def defined_in(path):
    """The classes and functions of a file, methods as ``Class.method``."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        if isinstance(node, ast.ClassDef):
            methods = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
            yield from (f"{node.name}.{each.name}" for each in methods)


def passages():
    """The numbered steps and the paragraphs of the page that name a file, each with the files and the names in it."""
    for passage in re.split(r"\n\n|\n(?=\d+\. )", PAGE.read_text().partition("## Journeys")[2]):
        files = re.findall(r"`([\w/]+\.py)`", passage)
        names = re.findall(r"`([A-Z]\w*[a-z]\w*(?:\.\w+)?)`", passage)
        if files:
            yield pytest.param(files, names, id=" ".join(names))


@pytest.mark.parametrize(("files", "names"), list(passages()))
def test_what_the_journeys_name_is_in_the_files_that_they_name(files, names):
    defined = {name for file in files for name in defined_in(PACKAGE / file)}
    assert set(names) <= defined
