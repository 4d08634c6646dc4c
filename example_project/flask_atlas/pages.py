"""The pages, each of which uses another way of caching in Flask-Caching. They note computed parts in ``served``."""

from typing import Final

from flask import Blueprint, abort, redirect, render_template, request, url_for
from flask_caching import Cache
from werkzeug.wrappers import Response

from flask_atlas import cities
from flask_atlas.served import computed

NEAREST: Final = 12

SPOTS: Final = {
    "Null Island": (0.0, 0.0),
    "Point Nemo": (-48.88, -123.39),
    "Mount Everest": (27.99, 86.93),
    "South Pole": (-90.0, 0.0),
    "Eiffel Tower": (48.86, 2.29),
}

cache: Final = Cache()
pages: Final = Blueprint("pages", __name__, template_folder="templates")


@pages.get("/")
def world() -> str:
    """Show a page with a cached fragment, which calls ``load_world`` if it must be rendered."""
    return render_template("world.html", load_world=load_world, spots=SPOTS)


def load_world() -> cities.Figures:
    computed("the world")
    return cities.world()


@pages.get("/country/<string(length=2):code>")
@cache.cached()
def country(code: str) -> str:
    """Show a page that is cached as a whole."""
    computed("the country's figures")
    figures = cities.country(code)
    if figures is None:
        abort(404, f"There is no country {code!r}.")
    return render_template("country.html", **figures)


@pages.get("/nearest")
def nearest() -> str:
    """Show a search with a memoized result. Points are rounded to 0.01 degrees, so that close points share a result."""
    latitude, longitude = _degrees("lat", 90), _degrees("lon", 180)
    found = nearest_cities(latitude, longitude)
    return render_template("nearest.html", latitude=latitude, longitude=longitude, found=found, spots=SPOTS)


@cache.memoize(timeout=3600)
def nearest_cities(latitude: float, longitude: float) -> list[cities.Near]:
    computed("the distance of every city")
    return cities.nearest(latitude, longitude, NEAREST)


@pages.post("/cache/empty")
def empty_cache() -> Response:
    """Empty the cache. This needs no CSRF token, since there is nothing to protect."""
    cache.clear()
    return redirect(url_for("pages.world"))


def _degrees(name: str, most: int) -> float:
    given = request.args.get(name, "0")
    try:
        degrees = float(given)
    except ValueError:
        degrees = float("nan")
    if not -most <= degrees <= most:
        abort(400, f"{name} must be a number of degrees from -{most} to {most}, not {given!r}.")
    # Adding 0.0 makes a negative zero positive.
    return round(degrees, 2) + 0.0
