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
BY_NOTICE = ("Pages", "Calls of a site", "Host", "Django", "Flask", "Memoize", "Stampede", "Tags", "Tiers")
"""The subjects of the measurements that users notice, in this order. All others follow."""

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
    return "\n".join([heading, "| --- " * len(rows[0]) + "|", *others])


def options(name):
    """Return the table of the options in one of the modules under ``name``, such as ``DJANGO``."""
    found = next(getattr(each, name) for each in (option_table, host, near) if hasattr(each, name))
    rows = [
        (f"`{option_name}`", default(option), f"{option.meaning[:1].upper()}{option.meaning[1:]}.")
        for option_name, option in found.items()
        if option.meaning
    ]
    return table(("Option", "Default", "Meaning"), *rows)


def default(option):
    if option.default is option_table.OF_THE_SITE:
        return "the directory of the site"
    return f"`{repr(option.default) if option.words is None else option.words(option.default)}`"


def metrics():
    """Return the table of the metrics, with their names in Prometheus."""
    rows = []
    for metric in METRICS:
        unit = f"_{metric.unit}" if metric.is_measured and not metric.name.endswith(metric.unit) else ""
        kind, total = ("counter", "_total") if metric.kind is Kind.COUNTER else ("gauge", "")
        labels = "`cache`" if metric.label is None else f"`cache`, `{metric.label}`"
        rows.append((f"`wheelcache_{metric.name}{unit}{total}`", kind, labels, metric.description))
    return table(("Metric", "Kind", "Labels", "Meaning"), *rows)


def reasons():
    """Return the table of the reasons why pages are not stored."""
    rows = [
        (", ".join(f"`{detail}`" for detail in each.details or (name,)), each.cause, each.advice)
        for name, each in {**REASONS, **BYPASSING}.items()
    ]
    return table(("`detail`", "Cause", "What to change"), *rows)


def figures():
    """Return the published measurements: the system that they are from, and a table for each subject."""
    results = json.loads(RESULTS.read_text())
    versions = {results["implementation"]: results["python"].split()[0]} | results["peers"]
    peers = ", ".join(f"{name} {version}" for name, version in versions.items())
    parts = [f"Measured on {results['date'][:10]} on {results['cpu']} with the {results['core']} core and {peers}."]
    for section in sorted(results["sections"], key=lambda each: (*BY_NOTICE, each["title"]).index(each["title"])):
        rows, operation = [], None
        for row in section["rows"]:
            target = row["target"]
            measured = quantity(row["measured"], row["measured_unit"])
            bound = ""
            if target is not None:
                unit = row["measured_unit"].removesuffix(" its cost")
                bound = f"{'≥' if target['at_least'] else '≤'} {quantity(target['bound'], unit)}"
            if row["reached"] is False:
                measured, bound = f"**{measured}**", f"**{bound}, missed**"
            repeated = row["operation"] == operation
            operation = row["operation"]
            peer = ": ".join(filter(None, (row["peer"], quantity(row["theirs"], row["unit"]))))
            rows.append(("" if repeated else operation, quantity(row["ours"], row["unit"]), peer, measured, bound))
        headings = ("Operation", "wheelcache", "Compared with", "Ratio or figure", "Target")
        parts.append(f"## {section['title']}\n\n{section['method']}\n\n{table(headings, *rows)}")
    return "\n\n".join(parts)


def quantity(value, unit):
    """Return a measured value with its unit; an empty string for None."""
    if value is None:
        return ""
    if unit == "ns" and value >= 100_000:
        value, unit = value / 1000, "us"
    number = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{number} {re.sub(r'^us', 'µs', unit)}".strip()


if __name__ == "__main__":
    for path in sorted(REFERENCE.glob("*.md")):
        path.write_text(with_tables(path.read_text()))
