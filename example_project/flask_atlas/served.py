"""Shows in each page, and in the headers X-Cache and X-Duration-ms, how it was served, as on the Django site."""

from time import perf_counter
from typing import Final

from flask import Flask, Response, g
from markupsafe import Markup

SERVED: Final = "<!-- served -->"
"""The base template has this in the place of the line. Pages are cached with it, and not with the line."""


def init_app(app: Flask) -> None:
    app.before_request(_start)
    app.after_request(_stamp)


def computed(what: str) -> None:
    """Note that the request had to compute ``what``. If nothing is noted, all of the page came from the cache."""
    g.computed.append(what)


def _start() -> None:
    g.started = perf_counter()
    g.computed = []


def _stamp(response: Response) -> Response:
    if response.status_code != 200 or response.direct_passthrough:
        return response
    page = response.get_data(as_text=True)
    if SERVED not in page:
        return response
    milliseconds = (perf_counter() - g.started) * 1000
    response.headers["X-Cache"] = "MISS" if g.computed else "HIT"
    response.headers["X-Duration-ms"] = f"{milliseconds:.2f}"
    response.set_data(page.replace(SERVED, _line(g.computed, milliseconds)))
    return response


def _line(computed: list[str], milliseconds: float) -> str:
    if computed:
        line = Markup('<span class="badge miss">computed</span> {} in <b>{:.1f} ms</b>')
        return line.format(", ".join(computed), milliseconds)
    return Markup('<span class="badge hit">from the cache</span> in <b>{:.2f} ms</b>').format(milliseconds)
