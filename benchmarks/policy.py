"""Compares eviction policies: ``python -m benchmarks.policy`` prints the hit ratios of several caches on generated
streams of requests, and writes them to a plot.

Every cache has the same number of entries. A value carries the end of its lifetime, and a hit after that is a miss, so
that all caches run on the time of the stream. ``optimum`` is that of Belady ("A study of replacement algorithms for a
virtual-storage computer", 1966): it knows the future.
"""

import argparse
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from html import escape
from itertools import islice
from math import inf
from pathlib import Path
from random import Random
from typing import Any, Protocol

import cachebox
import moka_py
from rich.console import Console
from rich.progress import track
from rich.table import Table
from theine import Cache as TheineCache

from benchmarks.policy_streams import STREAMS, Request
from wheelcache.core import IMPLEMENTATION, CoreClass

PLOT = Path(__file__).parents[1] / "docs" / "explanation" / "policy.svg"


class Peer(Protocol):
    """A cache of keys and the ends of their lifetimes. ``get`` returns 0.0 for a missing key."""

    def get(self, key: int, now: float) -> float: ...

    def set(self, key: int, until: float) -> None: ...


class LruCache:
    policy = "lru"

    def __init__(self, size: int) -> None:
        self._now = 0.0
        self._core = CoreClass(max_entries=size, policy=self.policy, clock=lambda: self._now)

    def get(self, key: int, now: float) -> float:
        self._now = now
        while self._core.next_due <= now:
            self._core.advance()
        return self._core.find(key, 0.0)

    def set(self, key: int, until: float) -> None:
        self._core.set(key, until, None if until == inf else until - self._now)


class AdaptiveCache(LruCache):
    policy = "adaptive"


class Theine:
    def __init__(self, size: int) -> None:
        self._cache: TheineCache[int, float] = TheineCache(size)

    def get(self, key: int, now: float) -> float:
        return self._cache.get(key)[0] or 0.0

    def set(self, key: int, until: float) -> None:
        self._cache.set(key, until)


class Moka:
    def __init__(self, size: int) -> None:
        self._cache: Any = moka_py.Moka(size)

    def get(self, key: int, now: float) -> float:
        return self._cache.get(key, 0.0)

    def set(self, key: int, until: float) -> None:
        self._cache.set(key, until)


class CacheboxLfu:
    def __init__(self, size: int) -> None:
        self._cache: Any = cachebox.LFUCache(size)

    def get(self, key: int, now: float) -> float:
        return self._cache.get(key, 0.0)

    def set(self, key: int, until: float) -> None:
        self._cache[key] = until


PEERS: dict[str, Callable[[int], Peer]] = {
    "lru": LruCache,
    "adaptive": AdaptiveCache,
    "theine": Theine,
    "moka-py": Moka,
    "cachebox LFU": CacheboxLfu,
}


def hit_ratio(cache: Peer, requests: Sequence[Request]) -> float:
    hits = 0
    for time, key, lifetime in requests:
        if cache.get(key, time) > time:
            hits += 1
        else:
            cache.set(key, time + lifetime)
    return hits / len(requests)


def optimum(requests: Sequence[Request], size: int) -> float:
    """Return the hit ratio of a cache that evicts the key whose next use is the latest, or that is not used again."""
    following: list[float] = [inf] * len(requests)
    last: dict[int, int] = {}
    for number in range(len(requests) - 1, -1, -1):
        key = requests[number][1]
        following[number] = last.get(key, inf)
        last[key] = number
    held: dict[int, tuple[float, float]] = {}
    latest: list[tuple[float, int]] = []
    hits = 0
    for number, (time, key, lifetime) in enumerate(requests):
        until = held[key][1] if key in held and held[key][1] > time else time + lifetime
        hits += key in held and held[key][1] > time
        next_use = following[number]
        if next_use != inf and requests[int(next_use)][0] >= until:
            next_use = inf
        held[key] = next_use, until
        heappush(latest, (-next_use, key))
        while len(held) > size:
            use, oldest = heappop(latest)
            if oldest in held and held[oldest][0] == -use:
                del held[oldest]
    return hits / len(requests)


def measure(size: int, length: int) -> dict[str, dict[str, float]]:
    """Return the hit ratios by stream and cache."""
    ratios = {}
    for name in track(STREAMS, "Streams"):
        requests = list(islice(STREAMS[name](Random(1), size), length * size))
        ratios[name] = {peer: hit_ratio(make(size), requests) for peer, make in PEERS.items()}
        ratios[name]["optimum"] = optimum(requests, size)
    return ratios


def table(ratios: dict[str, dict[str, float]]) -> Table:
    shown = Table(title="Hits per 100 requests")
    for column in ("stream", *next(iter(ratios.values()))):
        shown.add_column(column, justify="left" if column == "stream" else "right")
    for name, row in ratios.items():
        shown.add_row(name, *(f"{100 * ratio:.1f}" for ratio in row.values()))
    return shown


def markdown(ratios: dict[str, dict[str, float]]) -> str:
    columns = [*next(iter(ratios.values()))]
    rows = [
        f"| {name} | " + " | ".join(f"{100 * row[each]:.1f}" for each in columns) + " |" for name, row in ratios.items()
    ]
    return "\n".join(["| stream | " + " | ".join(columns) + " |", "| --- |" + " ---: |" * len(columns), *rows])


COLORS = {"adaptive": "#2563eb", "theine": "#d97706", "moka-py": "#059669", "cachebox LFU": "#a855f7"}
WIDTH, LEFT, ROW, TOP, MOST = 760, 130, 26, 44, 50


def plot(ratios: dict[str, dict[str, float]]) -> str:
    """Return an SVG: for each stream, the points of hit ratio above or below LRU, cut at 50."""

    def across(points: float) -> float:
        return LEFT + (WIDTH - LEFT - 20) * (min(max(points, -MOST), MOST) + MOST) / (2 * MOST)

    height = TOP + ROW * len(ratios) + 30
    label = "Points of hit ratio above or below LRU, by stream"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif"',
        f' font-size="12" fill="#808080" role="img" aria-label="{label}">',
    ]
    for place, (name, color) in enumerate(COLORS.items()):
        parts.append(f'<circle cx="{LEFT + 130 * place}" cy="16" r="5" fill="{color}"/>')
        parts.append(f'<text x="{LEFT + 130 * place + 10}" y="20">{name}</text>')
    for points in range(-MOST, MOST + 1, 25):
        parts.append(
            f'<line x1="{across(points)}" x2="{across(points)}" y1="34" y2="{height - 24}" stroke="#80808060"/>'
        )
        parts.append(f'<text x="{across(points)}" y="{height - 8}" text-anchor="middle">{points:+d}</text>')
    for number, (stream, row) in enumerate(ratios.items()):
        y = TOP + ROW * number + ROW // 2
        parts.append(f'<text x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{escape(stream)}</text>')
        for name, color in reversed(COLORS.items()):
            x = across(100 * (row[name] - row["lru"]))
            parts.append(f'<circle cx="{x:.1f}" cy="{y}" r="5" fill="{color}"/>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policy", description=__doc__)
    parser.add_argument("--size", type=int, default=1000, help="the entries of each cache")
    parser.add_argument("--length", type=int, default=150, help="requests per entry")
    parser.add_argument("--plot", type=Path, default=PLOT, help="the file of the plot")
    parser.add_argument("--markdown", action="store_true", help="print the table for the documentation")
    given = parser.parse_args()
    if IMPLEMENTATION == "python":
        raise SystemExit("only the compiled core has the adaptive policy")
    ratios = measure(given.size, given.length)
    if given.markdown:
        print(markdown(ratios))
    else:
        Console().print(table(ratios))
    given.plot.write_text(plot(ratios), encoding="utf-8")


if __name__ == "__main__":
    main()
