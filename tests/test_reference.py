"""The tables in docs/reference are those of the code and the measurements, and names exist."""

import re
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name

from wheelcache.engine.stats import MISSES

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"


def test_the_tables_in_the_reference_are_current(tmp_path):
    copy = tmp_path / "docs"
    (copy / "reference").mkdir(parents=True)
    (copy / "tables.py").write_text((ROOT / "docs" / "tables.py").read_text())
    pages = {path.name: path.read_text() for path in REFERENCE.iterdir()}
    for name, text in pages.items():
        # Without the tables, so that all of them are made.
        text = re.sub(r"^(<!-- \w+.*? -->\n).*?^(<!-- end -->)$", r"\1\2", text, flags=re.MULTILINE | re.DOTALL)
        (copy / "reference" / name).write_text(text)
    subprocess.run([sys.executable, copy / "tables.py"], cwd=ROOT, check=True, timeout=250)
    outdated = [name for name, text in pages.items() if (copy / "reference" / name).read_text() != text]
    assert outdated == [], "run make reference"
    assert all("|---|" in pages[name] for name in ("django.md", "flask.md", "metrics.md", "figures.md"))


def test_the_reference_of_the_metrics_names_all_causes_of_misses():
    # Across the ends of lines.
    text = " ".join((REFERENCE / "metrics.md").read_text().split())
    assert [cause for cause in MISSES if f"`{cause}`" not in text.partition("that of a miss is")[2]] == []


def test_the_reference_names_classes_functions_and_members_that_exist():
    missing = []
    for path in REFERENCE.glob("*.md"):
        for name, options in re.findall(r"^::: (\S+)\n((?: .*\n)*)", path.read_text() + "\n", re.MULTILINE):
            documented = resolve_name(name)
            members = re.search(r"\bmembers: \[([^]]*)\]", options)
            names = [] if members is None else members[1].split(",")
            missing += [(name, member) for member in map(str.strip, names) if not hasattr(documented, member)]
    assert missing == []
