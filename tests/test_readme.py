"""The Python in README.md and docs/: it compiles, and every name in it is imported or defined there."""

import ast
import logging.config
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

SNIPPETS = {
    f"{page.name}:{text.count(chr(10), 0, found.start()) + 2}": found[1]
    for page in PAGES
    for text in [page.read_text()]
    for found in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
}


def as_module(snippet):
    """A snippet as it is, or of those that show options only, each line where it belongs: in a dict or in a call."""
    try:
        ast.parse(snippet)
    except SyntaxError:
        lines = [line.split("  #")[0] for line in snippet.splitlines()]
        return "\n".join(f"{{{line}}}" if line.startswith('"') else f"dict({line})" for line in lines)
    return snippet


@pytest.mark.parametrize("snippet", SNIPPETS.values(), ids=SNIPPETS)
def test_a_snippet_compiles_and_defines_or_imports_what_it_uses(snippet):
    module = as_module(snippet)
    compile(module, "snippet", "exec")
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F821", "--quiet", "-"],
        input=module,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_every_name_of_wheelcache_that_a_snippet_imports_is_there():
    imported = {
        (node.module, alias.name)
        for snippet in SNIPPETS.values()
        for node in ast.walk(ast.parse(as_module(snippet)))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("wheelcache")
        for alias in node.names
    }
    assert ("wheelcache.django_backend", "cache") in imported
    for module, name in imported:
        assert hasattr(__import__(module, fromlist=[name]), name), (module, name)


def test_the_logging_snippet_silences_no_logger_that_is_there():
    (snippet,) = [each for each in SNIPPETS.values() if "LOGGING =" in each]
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


OPTION_TABLES = {"In `OPTIONS`:": "COHERENCE", "In `CACHE_OPTIONS`:": "coherence"}


@pytest.mark.parametrize("table", OPTION_TABLES)
def test_the_option_table_has_coherence(table):
    rows = (ROOT / "README.md").read_text().split(table)[1].split("\n\n")[1].splitlines()
    assert any(row.startswith(f"| `{OPTION_TABLES[table]}` |") for row in rows)


def test_the_option_tables_have_every_option():
    from wheelcache.django_backend.stores import OPTIONS

    text = (ROOT / "README.md").read_text().split("In `OPTIONS`:")[1].split("\n\n")[1]
    assert set(re.findall(r"^\| `(\w+)`", text, re.MULTILINE)) == set(OPTIONS)
