"""Follow the advice: ``make advise`` visits generated streams of requests with too small a cache, prints the advice for
it, applies each piece alone, visits again, and compares the hit ratio with the promise.

The advice comes from the first half of each stream. The hit ratios of the second half are compared, by caches that have
seen the first. ``manage.py follow_advice`` does the same with the example site.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.policy_streams import STREAMS, Request
from wheelcache.core import CoreClass
from wheelcache.watch.advice import Advice, advise
from wheelcache.watch.figures import Sum
from wheelcache.watch.rows import SAMPLE


@dataclass(frozen=True)
class Outcome:
    """A piece of advice, and the hit ratios of the second half without it and with it."""

    advice: Advice
    before: float
    realised: float


class Visited:
    """A core, on the time of the stream, that has seen some requests."""

    def __init__(self, requests: Sequence[Request], **options: Any) -> None:
        self._now = 0.0
        self.limit = options["max_entries"]
        self.core = CoreClass(clock=lambda: self._now, **options)
        self.visit(requests)

    def visit(self, requests: Sequence[Request]) -> float:
        """Ask for keys and store those that are missing, as sites do. Return the hit ratio."""
        core, hits = self.core, 0
        for self._now, key, lifetime in requests:
            while core.next_due <= self._now:
                core.advance()
            if core.find(key) is None:
                core.count_miss(key)
                core.set(key, True, lifetime)
            else:
                hits += 1
        return hits / len(requests)

    def advice(self) -> list[Advice]:
        """Return the advice that promises something."""
        gauges = {
            **dict.fromkeys(("max_entries", "most_entries"), self.limit),
            "peak": len(self.core),
            **dict(zip(SAMPLE, self.core.sample(), strict=True)),
        }
        found = advise([Sum(gauges=gauges, processes=frozenset({1})).of_cache("a site")])
        return [advice for advice in found if advice.promised is not None]


def outcomes(requests: Sequence[Request], size: int, seed: int = 1) -> Iterator[Outcome]:
    """Yield the outcome of each piece of advice for the first half of the requests.

    Args:
        seed: the secret of the caches.
    """
    half = len(requests) // 2
    first, second = requests[:half], requests[half:]
    visited = Visited(first, max_entries=size, seed=seed)
    found = visited.advice()
    before = visited.visit(second) if found else 0.0
    for advice in found:
        yield Outcome(
            advice, before, Visited(first, **{"max_entries": size, "seed": seed, **advice.change}).visit(second)
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.advice", description=__doc__)
    parser.add_argument("streams", nargs="*", default=["web", "Zipf", "Zipf with scans", "flood", "drift"])
    parser.add_argument("--size", type=int, default=10_000, help="the entries of the cache that is too small")
    parser.add_argument("--length", type=int, default=80, help="requests per entry")
    given = parser.parse_args()
    table = Table(title="Hits per 100 requests")
    for column in ("stream", "change"):
        table.add_column(column)
    for column in ("before", "promised", "realised"):
        table.add_column(column, justify="right")
    console = Console()
    for name in track(given.streams, "Streams", console=console):
        requests = list(islice(STREAMS[name](Random(1), given.size), given.length * given.size))
        for each in outcomes(requests, given.size):
            console.print(f"{name}: {each.advice.text}")
            change = ", ".join(f"{option}={value!r}" for option, value in each.advice.change.items())
            ratios = (each.before, each.advice.promised or 0.0, each.realised)
            table.add_row(name, change, *(f"{100 * ratio:.1f}" for ratio in ratios))
    console.print(table)


if __name__ == "__main__":
    main()
