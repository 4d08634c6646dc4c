"""Extends MkDocs while it builds the site: draws flowcharts, and reads docstrings."""

import re
import subprocess

from griffe import Extension

from wheelcache.engine import option_table

EXAMPLE = re.compile(r"^>>> .*\n(?:^.+\n?)*", re.MULTILINE)
OPTION_S_DEFAULT = re.compile(r"ENGINE\['(\w+)'\]\.default")
FLOWCHART = re.compile(r"^```mermaid\n(flowchart .*?)^```$", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown, **_):
    """Replace flowcharts by pictures."""
    return FLOWCHART.sub(lambda found: drawn(found[1]), markdown)


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
    """Shows examples as code, and the defaults of options as values."""

    def on_object(self, *, obj, **_):
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```\n", obj.docstring.value)

    def on_function(self, *, func, **_):
        for parameter in func.parameters:
            if found := OPTION_S_DEFAULT.fullmatch(str(parameter.default)):
                value = option_table.ENGINE[found[1]].default
                parameter.default = getattr(value, "__qualname__", repr(value))
