"""Extends MkDocs while it builds the site: adds tables made from the code and the measurements, draws flowcharts, and
reads docstrings."""

import ast
import json
import re
import subprocess
from pathlib import Path

from griffe import Extension

from wheelcache import option_table
from wheelcache.observability.metrics import METRICS, Kind
from wheelcache.option_table import Options

RESULTS = Path(__file__).with_name("reference") / "figures.json"
BY_NOTICE = ("Pages", "Django", "Flask", "Memoize", "Stampede", "Tags", "Tiers")
"""The subjects of the measurements that users notice, in this order. All others follow."""

MARKER = re.compile(r"^<!-- (options|metrics|figures) ?(\w*) -->$", re.MULTILINE)
EXAMPLE = re.compile(r"^>>> .*\n(?:^.+\n?)*", re.MULTILINE)
OPTION_S_DEFAULT = re.compile(r"ENGINE\['(\w+)'\]\.default")
TWINS = re.compile(r"\(?(?P<name>\w+), \w+\)? = twins\((?P<steps>\w+)")
FLOWCHART = re.compile(r"^```mermaid\n(flowchart .*?)^```$", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown, **_):
    """Replace markers by tables, and flowcharts by pictures."""
    tables = {"options": options, "metrics": metrics, "figures": figures}
    markdown = MARKER.sub(lambda found: tables[found[1]](*found[2].split()), markdown)
    return FLOWCHART.sub(lambda found: drawn(found[1]), markdown)


def table(*rows):
    """Return a Markdown table. The first row is the heading."""
    heading, *others = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([heading, "| --- " * len(rows[0]) + "|", *others])


def options(name):
    """Return the table of the options in ``wheelcache.option_table`` under ``name``, such as ``DJANGO``."""
    found: Options = getattr(option_table, name)
    rows = [
        (f"`{option_name}`", default(option), f"{option.meaning[:1].upper()}{option.meaning[1:]}.")
        for option_name, option in found.items()
        if option.meaning
    ]
    return table(("Option", "Default", "Meaning"), *rows)


def default(option):
    return {option_table.OF_THE_SITE: "the directory of the site", (): "`0`"}.get(
        option.default, f"`{option.default!r}`"
    )


def metrics():
    """Return the table of the metrics, with their names in Prometheus."""
    rows = []
    for metric in METRICS:
        unit = f"_{metric.unit}" if metric.is_measured and not metric.name.endswith(metric.unit) else ""
        kind, total = ("counter", "_total") if metric.kind is Kind.COUNTER else ("gauge", "")
        labels = "`cache`" if metric.label is None else f"`cache`, `{metric.label}`"
        rows.append((f"`wheelcache_{metric.name}{unit}{total}`", kind, labels, metric.description))
    return table(("Metric", "Kind", "Labels", "Meaning"), *rows)


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


def drawn(flowchart):
    """Return a Mermaid flowchart as SVG, drawn by Graphviz.

    The flowchart has nodes, arrows and frames. Graphviz draws no arrow from a frame, so such an arrow starts at a node
    of the frame and is clipped at the frame's edge.
    """
    shape = "node [shape=box, style=rounded, fontname=sans, fontsize=12]"
    lines, frames, frame = ["digraph {", f"compound=true; fontname=sans; {shape}"], {}, None
    for line in map(str.strip, flowchart.splitlines()[1:]):
        if found := re.fullmatch(r"subgraph (\w+).*", line):
            frame = found[1]
            lines.append(f'subgraph cluster_{frame} {{ label="{frame}"; style="rounded,dashed"')
        elif line == "end":
            frame = None
            lines.append("}")
        elif found := re.fullmatch(r"(\w+)\[\"(.*)\"\]", line):
            label = re.sub(r", ", r"\\n", found[2])
            lines.append(f'{found[1]} [label="{label}"]')
            frames.setdefault(frame, found[1])
        elif found := re.fullmatch(r"(\w+) --> ([\w &]+)", line):
            start, tail = (frames[found[1]], f" [ltail=cluster_{found[1]}]") if found[1] in frames else (found[1], "")
            lines += [f"{start} -> {to}{tail}" for to in found[2].split(" & ")]
    lines.append("}")
    done = subprocess.run(["dot", "-Tsvg"], input="\n".join(lines), capture_output=True, text=True, check=True)
    svg = done.stdout[done.stdout.index("<svg") :].replace("\n", " ")
    return f'<div class="picture" role="img" aria-label="{"; ".join(frames.values())}">{svg}</div>\n'


class Docstrings(Extension):
    """Shows examples as code, the defaults of options as values, and methods that are made of steps."""

    def on_object(self, *, obj, **_):
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```\n", obj.docstring.value)

    def on_class_members(self, *, node, cls, **_):
        """Show the methods that ``twins`` makes of steps, whose docstrings they have."""
        for line in node.body:
            if match := TWINS.match(ast.unparse(line)):
                steps = cls.members.pop(match["steps"])
                steps.name, steps.returns = match["name"], None
                cls.set_member(steps.name, steps)

    def on_function(self, *, func, **_):
        for parameter in func.parameters:
            if found := OPTION_S_DEFAULT.fullmatch(str(parameter.default)):
                value = option_table.ENGINE[found[1]].default
                parameter.default = getattr(value, "__qualname__", repr(value))
