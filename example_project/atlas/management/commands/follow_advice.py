"""Visits the site with too small a cache, prints the advice for it, applies each piece, visits again, and compares."""

import random
from argparse import ArgumentTypeError
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, islice
from typing import Any, Final
from urllib.parse import urlencode

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.test import Client
from django.test.utils import override_settings
from django.urls import reverse
from rich.console import Console
from rich.table import Table

from atlas.management.progress import progress
from atlas.management.visiting import positive
from atlas.models import City
from atlas.views import MOST_SUMMARIES
from wheelcache import Cache
from wheelcache.watch.advice import Advice, advise, silence
from wheelcache.watch.django_caches import engines
from wheelcache.watch.site import own_figures

LEARNING: Final = 60
"""Look-ups per entry before the advice. With 26, the advice for so small a cache is often still in doubt."""

COMPARED: Final = 12
"""Look-ups per entry of the visits whose hit ratios are compared."""


class Command(BaseCommand):
    help = (
        "Visit the site in this process with too small a cache, print the advice for it, apply each piece alone, visit "
        "again, and compare the hit ratio with the promise."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--entries", type=_at_least_5000, default=5000, help="MAX_ENTRIES of the first visit")
        parser.add_argument("--seed", type=positive, default=1, help="choose other visits")

    def handle(self, *, entries: int, seed: int, **options: Any) -> None:
        requests = _requests(seed)
        learning, compared = (_visits(requests, number * entries) for number in (LEARNING, COMPARED))
        if not learning:
            raise CommandError("There is nothing to visit yet: run import_cities first.")
        with _site("too small", {"max_entries": entries}) as cache:
            _visit(cache, learning)
            (figures,) = own_figures([cache])
            found = advise([figures])
            before = _visit(cache, compared)
        for each in found:
            self.stdout.write(str(each))
        if not found:
            self.stdout.write(f"Cache {figures.name!r}: {silence(figures)}")
        results = []
        for each in found:
            if each.promised is not None:
                with _site(_shown(each), {"max_entries": entries, **each.change}) as cache:
                    _visit(cache, learning)
                    results.append((each, _visit(cache, compared)))
        if results:
            printer = Console(no_color=options["no_color"])
            with printer.capture() as printed:
                printer.print(_table(before, results))
            self.stdout.write(printed.get())


@contextmanager
def _site(name: str, options: Mapping[str, Any]) -> Iterator[Cache]:
    """Give the site an empty cache with these options of the engine, which publishes no figures."""
    given = {option.upper(): value for option, value in options.items()}
    backend = {
        "BACKEND": "wheelcache.django_backend.WheelCache",
        "LOCATION": name,
        "OPTIONS": {"FIGURES_DIR": None, "LOG_INTERVAL": None, **given},
    }
    # With DEBUG, Django would keep the text of each query.
    with override_settings(DEBUG=False, CACHES={"default": backend, "sessions": backend}):
        # Both aliases share one store.
        (cache,) = engines()
        yield cache
        cache.close()


def _visit(cache: Cache, paths: Sequence[str]) -> float:
    """Visit these paths, and return the hit ratio of these visits alone."""
    before, client = cache.stats(), Client()
    with progress() as bars:
        for path in bars.track(paths, description=f"{cache.name}: visits"):
            client.get(path)
    return (cache.stats() - before).hit_ratio


def _requests(seed: int) -> Iterator[int]:
    """Yield the ids of cities forever, the n-th of which is drawn 1/n as often as the first."""
    chance, ids = random.Random(seed), list(City.objects.values_list("pk", flat=True))
    weights = list(accumulate(1 / rank for rank in range(1, len(ids) + 1)))
    while ids:
        yield from chance.choices(ids, cum_weights=weights, k=1000)


def _visits(requests: Iterator[int], look_ups: int) -> list[str]:
    """Return the paths of visits with this number of look-ups together. Each asks for the summaries of a map."""
    paths = []
    while look_ups > 0 and (ids := set(islice(requests, MOST_SUMMARIES))):
        look_ups -= len(ids)
        paths.append(f"{reverse('summaries')}?{urlencode({'id': sorted(ids)}, doseq=True)}")
    return paths


def _shown(advice: Advice) -> str:
    return ", ".join(f"{option.upper()}={value!r}" for option, value in advice.change.items())


def _table(before: float, results: Sequence[tuple[Advice, float]]) -> Table:
    table = Table(title="Hits per 100 look-ups of the second visits")
    table.add_column("change")
    for column in ("before", "promised", "realised"):
        table.add_column(column, justify="right")
    for advice, realised in results:
        table.add_row(_shown(advice), *(f"{100 * ratio:.1f}" for ratio in (before, advice.promised or 0.0, realised)))
    return table


def _at_least_5000(text: str) -> int:
    entries = positive(text)
    if entries < 5000:
        raise ArgumentTypeError(f"must be at least 5000, since smaller caches are not measured, not {text!r}")
    return entries
