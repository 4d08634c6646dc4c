"""Makes the tables in docs/reference from the code and the measurements: ``make reference`` writes them into the pages.

Two comments in a page enclose each table: ``<!-- metrics -->`` and ``<!-- end -->``.
"""

import json
import re
from pathlib import Path

from wheelcache.engine import option_table
from wheelcache.host_cache import options as host
from wheelcache.near_cache import options as near
from wheelcache.pages.reasons import BYPASSING, REASONS
from wheelcache.watch.metrics import METRICS, Kind

REFERENCE = Path(__file__).with_name("reference")
RESULTS = REFERENCE / "figures.json"
SHOWN = ("Pages", "Calls of a site", "Host", "Django", "Flask", "Tiers", "Memory", "A million entries")
"""The subjects of the page of figures, in its order. ``figures.json`` has all."""

LEFT_OUT = re.compile(
    "by the backend object|requests together|runs of views|two Vary fields|in process, [AW]SGI, plain|FILL_WAIT|"
    "fill_wait|tracemalloc"
)
"""Operations whose figures are in ``figures.json`` only."""

ALWAYS_NAMED = {"CPython", "Django", "Flask-Caching", "granian", "gunicorn", "uvicorn", "wheelcache"}

NOTHING = "Nothing: such a response must not be stored, or the request is unusual."
BY_WHY = "The command why names the code. "
OF_CSRF = "each `detail` that names CSRF"

PLACE = re.compile(
    r"^(<!-- (options|metrics|figures|reasons) ?(\w*) -->\n).*?^(<!-- end -->)$", re.MULTILINE | re.DOTALL
)


def with_tables(page):
    """Return the text of a page, with the current tables."""
    tables = {"options": options, "metrics": metrics, "figures": figures, "reasons": reasons}
    return PLACE.sub(lambda found: f"{found[1]}\n{tables[found[2]](*found[3].split())}\n\n{found[4]}", page)


def table(*rows):
    """Return a Markdown table. The first row is the heading."""
    heading, *others = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([heading, "|---" * len(rows[0]) + "|", *others])


def options(name):
    """Return the table of the options in one of the modules under ``name``, such as ``DJANGO``.

    The table of ``DJANGO_HOST`` has the options that differ from those of ``DJANGO``. The others follow by name.
    """
    framework, _, kind = name.partition("_")
    base = documented(framework) if kind else {}
    found = documented(name)
    rows = [row for option_name, row in found.items() if base.get(option_name) != row]
    same = [f"`{option_name}`" for option_name, row in found.items() if base.get(option_name) == row]
    also = f"\n\nAlso, as for [`WheelCache`](#wheelcache): {', '.join(same)}." if same else ""
    return table(("Option", "Default", "Meaning"), *rows) + also


def documented(name):
    """Return the rows of the options that have a meaning, by their names."""
    found = next(getattr(each, name) for each in (option_table, host, near) if hasattr(each, name))
    return {
        option_name: (f"`{option_name}`", default(option), f"{option.meaning[:1].upper()}{option.meaning[1:]}.")
        for option_name, option in found.items()
        if option.meaning
    }


def default(option):
    """Return the default of an option as a site would write it."""
    if option.default is option_table.OF_THE_SITE:
        return "the directory of the site"
    return f"`{repr(option.default) if option.words is None else option.words(option.default)}`"


def metrics():
    """Return the table of the metrics, with their names in Prometheus."""
    rows = []
    for metric in METRICS:
        unit = f"_{metric.unit}" if metric.is_measured and not metric.name.endswith(metric.unit) else ""
        total = "_total" if metric.kind is Kind.COUNTER else ""
        label = "" if metric.label is None else f"{{{metric.label}}}"
        rows.append((f"`wheelcache_{metric.name}{unit}{total}{label}`", metric.description))
    return table(("Metric", "Meaning"), *rows)


def reasons():
    """Return the table of the reasons why pages are not stored. Reasons with the same advice share a row."""
    details = {}
    for name, each in {**REASONS, **BYPASSING}.items():
        shown = (f"`{detail}`" for detail in each.details or (name,))
        advice = NOTHING if each.advice.startswith(("Nothing:", "Nothing for the site:")) else each.advice
        details.setdefault(advice, []).extend(OF_CSRF if "csrf" in detail.lower() else detail for detail in shown)
    rows = [(", ".join(dict.fromkeys(found)), advice.removeprefix(BY_WHY)) for advice, found in details.items()]
    return table(("`detail`", "What to change"), *rows)


def figures():
    """Return the published measurements: the system that they are from, and a table for each subject."""
    results = json.loads(RESULTS.read_text())
    versions = {results["implementation"]: results["python"].split()[0]} | results["peers"]
    sections = {each["title"]: each for each in results["sections"]}
    shown = [shown_rows(sections[title]["rows"]) for title in SHOWN]
    named = {name for rows in shown for row in rows for name in versions if name.lower() in row[2].lower()}
    peers = ", ".join(f"{name} {version}" for name, version in versions.items() if name in named | ALWAYS_NAMED)
    parts = [f"Measured on {results['date'][:10]} on {results['cpu']} with the {results['core']} core and {peers}."]
    for title, rows in zip(SHOWN, shown, strict=True):
        parts.append(f"## {title}\n\n{table(('Operation', 'wheelcache', 'Compared with'), *rows)}")
    return "\n\n".join(parts)


def shown_rows(rows):
    """Return a row for each operation, with the figures of all its peers."""
    found = {}
    for row in rows:
        if LEFT_OUT.search(row["operation"]) or row["theirs"] is None:
            continue
        peer = f"{row['peer']}: {quantity(row['theirs'], row['unit'])}"
        missed = "**" if row["reached"] is False else ""
        found.setdefault((row["operation"], quantity(row["ours"], row["unit"])), []).append(f"{missed}{peer}{missed}")
    return [(*operation, "; ".join(peers)) for operation, peers in found.items()]


def quantity(value, unit):
    """Return a measured value with its unit; an empty string for None."""
    if value is None:
        return ""
    if unit == "ns" and value >= 1000:
        value, unit = value / 1000, "us"
    number = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{number} {re.sub(r'^us', 'µs', unit)}".strip()


if __name__ == "__main__":
    for path in sorted(REFERENCE.glob("*.md")):
        path.write_text(with_tables(path.read_text()))
