"""Distances on the globe, and maps of dots, in pure Python and without a database."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import asin, cos, radians, sin, sqrt
from typing import Final, NamedTuple

EARTH_RADIUS_KM: Final = 6371.0088
KM_PER_DEGREE: Final = 111.195
"""The length of a degree of latitude."""

MAP_WIDTH: Final = 800


class Place(NamedTuple):
    """A point on the globe: its name, its latitude and longitude in degrees, and its population."""

    name: str
    latitude: float
    longitude: float
    population: int


class Pair(NamedTuple):
    first: Place
    second: Place
    km: float


@dataclass(frozen=True, slots=True)
class Distances:
    """A summary of the distances between all pairs of some places, in kilometres."""

    places: int
    pairs: int
    mean_km: float
    nearest: Pair
    farthest: Pair


@dataclass(frozen=True, slots=True)
class DotMap:
    """An SVG map: its size, and one path of dots for each size of place."""

    width: int
    height: int
    small: str
    medium: str
    large: str


def distance_km(latitude: float, longitude: float, other_latitude: float, other_longitude: float) -> float:
    """Return the great-circle distance of two points in degrees, by the haversine formula."""
    phi, other_phi = radians(latitude), radians(other_latitude)
    across = sin((other_phi - phi) / 2) ** 2
    along = sin(radians(other_longitude - longitude) / 2) ** 2
    return 2 * EARTH_RADIUS_KM * asin(sqrt(across + cos(phi) * cos(other_phi) * along))


def distances(places: Sequence[Place]) -> Distances:
    """Compare all pairs of at least two ``places``. A thousand places take a second."""
    nearest = farthest = Pair(places[0], places[1], distance_km(*places[0][1:3], *places[1][1:3]))
    pairs, total = 0, 0.0
    for first, second in combinations(places, 2):
        km = distance_km(first.latitude, first.longitude, second.latitude, second.longitude)
        pairs += 1
        total += km
        if km < nearest.km:
            nearest = Pair(first, second, km)
        elif km > farthest.km:
            farthest = Pair(first, second, km)
    return Distances(len(places), pairs, total / pairs, nearest, farthest)


def western_edge(longitudes: Iterable[float]) -> float:
    """Return the longitude where a map begins: east of the widest gap, so that the antimeridian does not split it."""
    ordered = sorted(longitudes)
    gaps = zip(ordered, [*ordered[1:], ordered[0]], strict=True)
    return max(gaps, key=lambda gap: (gap[1] - gap[0]) % 360)[1]


def dot_map(places: Sequence[Place], west: float, margin: float = 12) -> DotMap:
    """Return a map of at least one place, from the meridian ``west`` eastwards. Its scale is that of its middle."""
    latitudes = [place.latitude for place in places]
    eastings = [(place.longitude - west) % 360 for place in places]
    middle = (max(latitudes) + min(latitudes)) / 2
    squeeze = cos(radians(middle))
    breadth = max((max(eastings) - min(eastings)) * squeeze, 0.5)
    depth = max(max(latitudes) - min(latitudes), breadth / 4)
    # A map is at most three quarters as tall as it is wide.
    scale = (MAP_WIDTH - 2 * margin) / max(breadth, depth / 0.75)
    height = depth * scale + 2 * margin
    middle_easting = (max(eastings) + min(eastings)) / 2

    def dot(place: Place, easting: float) -> str:
        x = MAP_WIDTH / 2 + (easting - middle_easting) * squeeze * scale
        y = height / 2 + (middle - place.latitude) * scale
        return f"M{x:.0f} {y:.0f}h0"

    dots: dict[str, list[str]] = {"small": [], "medium": [], "large": []}
    for place, easting in zip(places, eastings, strict=True):
        dots[_size(place.population)].append(dot(place, easting))
    return DotMap(MAP_WIDTH, round(height), *("".join(dots[size]) for size in ("small", "medium", "large")))


def _size(population: int) -> str:
    if population >= 1_000_000:
        return "large"
    return "medium" if population >= 200_000 else "small"
