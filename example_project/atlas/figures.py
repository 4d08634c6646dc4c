"""Reads the figures of the pages from the database, as plain values that can be cached."""

from collections.abc import Collection
from heapq import nsmallest
from typing import Any, Final

from django.db.models import Avg, Count, Max, Q, QuerySet, Sum

from atlas.geography import KM_PER_DEGREE, Distances, Place, distance_km, distances, dot_map, western_edge
from atlas.models import City, Continent, Country

WORLD_MAP_CITIES: Final = 3000
COUNTRY_MAP_CITIES: Final = 600
COMPARED_CITIES: Final = 1000
NEIGHBOURHOOD_KM: Final = 500

Figures = dict[str, Any]


def world() -> Figures:
    """Return the continents with their countries, the totals of the cities, and a map of the biggest cities."""
    countries = Country.objects.annotate(city_count=Count("cities"), urban_population=Sum("cities__population"))
    by_continent: dict[str, list[Country]] = {}
    for country in countries.order_by("-urban_population"):
        by_continent.setdefault(country.continent_id, []).append(country)
    places = _places(City.objects.all(), WORLD_MAP_CITIES)
    return {
        "continents": [(continent, by_continent[continent.code]) for continent in Continent.objects.all()],
        "totals": City.objects.aggregate(
            cities=Count("id"),
            countries=Count("country", distinct=True),
            timezones=Count("timezone", distinct=True),
            people=Sum("population"),
        ),
        "map": dot_map(places, west=-180),
    }


def summaries(keys: Collection[int]) -> list[Figures]:
    """Return the name, the place and the population of each city with one of the primary ``keys``."""
    columns = ("id", "name", "country_id", "latitude", "longitude", "population")
    return list(City.objects.filter(pk__in=keys).order_by().values(*columns))


def country(found: Country) -> Figures:
    """Return the aggregates of one country."""
    cities = City.objects.filter(country=found)
    totals = cities.aggregate(
        count=Count("id"),
        people=Sum("population"),
        average=Avg("population"),
        biggest=Max("population"),
        millions=Count("id", filter=Q(population__gte=1_000_000)),
        large=Count("id", filter=Q(population__gte=100_000, population__lt=1_000_000)),
        small=Count("id", filter=Q(population__lt=100_000)),
    )
    biggest = list(cities[:20])
    top = sum(city.population for city in biggest[:3])
    places = _places(cities, COUNTRY_MAP_CITIES)
    return {
        "totals": totals,
        "density": found.population / found.area_km2 if found.area_km2 else None,
        # Not the share of the country's own population, which may be an older count: the share could exceed 100 %.
        "top_share": 100 * top / totals["people"] if totals["people"] else None,
        "biggest": biggest,
        "timezones": list(_timezones(cities)),
        "extremes": {
            "Northernmost": cities.latest("latitude"),
            "Southernmost": cities.earliest("latitude"),
        },
        "map": dot_map(places, western_edge(place.longitude for place in places)),
    }


async def continent(code: str) -> Figures:
    """Return the countries and time zones of a continent. Raise Continent.DoesNotExist if there is none."""
    found = await Continent.objects.aget(pk=code)
    cities = City.objects.filter(country__continent=found)
    countries = found.countries.annotate(
        city_count=Count("cities"),
        urban_population=Sum("cities__population"),
        biggest_city=Max("cities__population"),
    ).order_by("-urban_population")
    return {
        "continent": found,
        "totals": await cities.aaggregate(count=Count("id"), people=Sum("population"), average=Avg("population")),
        "countries": [row async for row in countries],
        "timezones": [row async for row in _timezones(cities)[:20]],
    }


def neighbours(city: City) -> list[tuple[float, City]]:
    """Return the ten nearest cities within 500 km, as pairs (km, city), nearest first."""
    reach = NEIGHBOURHOOD_KM / KM_PER_DEGREE
    band = City.objects.filter(latitude__range=(city.latitude - reach, city.latitude + reach)).exclude(pk=city.pk)
    away = (
        (distance_km(city.latitude, city.longitude, latitude, longitude), pk)
        for pk, latitude, longitude in band.order_by().values_list("pk", "latitude", "longitude")
    )
    nearest = nsmallest(10, (pair for pair in away if pair[0] <= NEIGHBOURHOOD_KM))
    found = City.objects.select_related("country").in_bulk([pk for _, pk in nearest])
    return [(km, found[pk]) for km, pk in nearest]


def city_distances() -> Distances:
    """Return a summary of the half a million distances between the thousand biggest cities."""
    return distances(_places(City.objects.all(), COMPARED_CITIES))


def _timezones(cities: QuerySet[City]) -> QuerySet[City, Figures]:
    return cities.values("timezone").annotate(cities=Count("id"), people=Sum("population")).order_by("-people")


def _places(cities: QuerySet[City], most: int) -> list[Place]:
    """Return the biggest of ``cities``, at most ``most`` of them."""
    return [Place(*row) for row in cities.values_list("name", "latitude", "longitude", "population")[:most]]
