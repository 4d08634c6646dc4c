"""Reads the figures of the pages from the Django site's database, as plain values that can be cached."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from heapq import nsmallest
from pathlib import Path
from typing import Any, Final, NamedTuple

from atlas.geography import Place, distance_km, dot_map, western_edge
from flask import current_app

WORLD_MAP_CITIES: Final = 3000
COUNTRY_MAP_CITIES: Final = 600

Figures = dict[str, Any]


class NoCities(Exception):
    """The database has no cities, since they were not imported."""


class Near(NamedTuple):
    """A city and its distance."""

    km: float
    name: str
    country: str
    country_code: str
    latitude: float
    longitude: float
    population: int


def world() -> Figures:
    """Return the continents with their countries, the totals of the cities, and a map of the biggest cities.

    Raises NoCities.
    """
    with _database() as database:
        totals = database.execute(
            "SELECT count(*) AS cities, count(DISTINCT country_id) AS countries, count(DISTINCT timezone) AS timezones,"
            " sum(population) AS people FROM atlas_city"
        ).fetchone()
        if not totals["cities"]:
            raise NoCities("There are no cities in the database.")
        countries = database.execute(
            "SELECT continent.name AS continent, country.code, country.name, count(*) AS cities"
            " FROM atlas_city city JOIN atlas_country country ON country.code = city.country_id"
            " JOIN atlas_continent continent ON continent.code = country.continent_id"
            " GROUP BY country.code ORDER BY continent.name, sum(city.population) DESC"
        ).fetchall()
        places = _places(database, "", [], WORLD_MAP_CITIES)
    by_continent: dict[str, list[sqlite3.Row]] = {}
    for country in countries:
        by_continent.setdefault(country["continent"], []).append(country)
    return {"totals": totals, "continents": by_continent, "map": dot_map(places, west=-180)}


def country(code: str) -> Figures | None:
    """Return the aggregates of one country, or None."""
    with _database() as database:
        found = database.execute(
            "SELECT country.*, continent.name AS continent FROM atlas_country country"
            " JOIN atlas_continent continent ON continent.code = country.continent_id WHERE country.code = ?",
            [code],
        ).fetchone()
        if found is None:
            return None
        totals = database.execute(
            "SELECT count(*) AS cities, sum(population) AS people, avg(population) AS average,"
            " max(population) AS biggest, sum(population >= 1000000) AS millions FROM atlas_city WHERE country_id = ?",
            [code],
        ).fetchone()
        biggest = database.execute(
            "SELECT name, latitude, longitude, population FROM atlas_city WHERE country_id = ?"
            " ORDER BY population DESC, name LIMIT 20",
            [code],
        ).fetchall()
        timezones = database.execute(
            "SELECT timezone, count(*) AS cities, sum(population) AS people FROM atlas_city WHERE country_id = ?"
            " GROUP BY timezone ORDER BY people DESC",
            [code],
        ).fetchall()
        places = _places(database, "WHERE country_id = ?", [code], COUNTRY_MAP_CITIES)
    return {
        "country": found,
        "totals": totals,
        "biggest": biggest,
        "timezones": timezones,
        "map": dot_map(places, western_edge(place.longitude for place in places)),
    }


def nearest(latitude: float, longitude: float, count: int) -> list[Near]:
    """Return the ``count`` cities nearest to a point in degrees, by great circle, nearest first. Compare all cities.

    Raises NoCities.
    """
    with _database() as database:
        rows = database.execute(
            "SELECT city.name, country.name, country.code, latitude, longitude, city.population"
            " FROM atlas_city city JOIN atlas_country country ON country.code = city.country_id"
        )
        away = (Near(distance_km(latitude, longitude, row[3], row[4]), *row) for row in rows)
        found = nsmallest(count, away)
    if not found:
        raise NoCities("There are no cities in the database.")
    return found


def _places(database: sqlite3.Connection, where: str, arguments: list[str], most: int) -> list[Place]:
    """Return the biggest cities, at most ``most`` of them."""
    rows = database.execute(
        f"SELECT name, latitude, longitude, population FROM atlas_city {where} ORDER BY population DESC LIMIT ?",
        [*arguments, most],
    )
    return [Place(*row) for row in rows]


@contextmanager
def _database() -> Iterator[sqlite3.Connection]:
    """Yield a connection that cannot write. Raise sqlite3.OperationalError if there is no database."""
    uri = Path(current_app.config["DATABASE"]).resolve().as_uri()
    with closing(sqlite3.connect(f"{uri}?mode=ro", uri=True)) as database:
        database.row_factory = sqlite3.Row
        yield database
