"""The pages, each of which uses another way of caching in Django. They note computed parts in ``request.computed``."""

from typing import Final

from django.conf import settings
from django.core.cache import cache
from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_POST

from atlas import figures
from atlas.geography import Distances
from atlas.middleware import RECENT, AtlasRequest
from atlas.models import City, Continent, Country

MOST_SUMMARIES: Final = 100


def home(request: AtlasRequest) -> HttpResponse:
    """Show a page with a cached fragment. The rest of it depends on the visitor."""
    if not City.objects.exists():
        return render(request, "atlas/empty.html", status=503)

    def world() -> figures.Figures:
        request.computed.append("the world")
        return figures.world()

    codes = request.session.get(RECENT, [])
    seen = Country.objects.in_bulk(codes)
    recent = [seen[code] for code in codes if code in seen]
    return render(request, "atlas/home.html", {"load_world": world, "recent": recent})


# For the HTTP cache of shared_pages. Browsers may not keep the page, since no change of a city reaches them.
@cache_control(s_maxage=settings.PAGE_SECONDS)
def country(request: AtlasRequest, code: str) -> HttpResponse:
    """Show a page that is cached as a whole, for all visitors, until one of its cities changes."""

    def page() -> HttpResponse:
        found = get_object_or_404(Country.objects.select_related("continent"), pk=code)
        request.computed.append("the country's figures")
        return render(request, "atlas/country.html", {"country": found, **figures.country(found)})

    tags = (f"country:{code}",)
    response: HttpResponse = cache.get_or_set(f"country:{code}", page, settings.PAGE_SECONDS, tags=tags)
    return response


def city(request: AtlasRequest, pk: int) -> HttpResponse:
    """Show a row that is read each time, with its expensive parts from the cache."""
    found = get_object_or_404(City.objects.select_related("country__continent"), pk=pk)

    def neighbours() -> list[tuple[float, City]]:
        request.computed.append("the nearest cities")
        return figures.neighbours(found)

    return render(
        request,
        "atlas/city.html",
        {
            "city": found,
            "neighbours": cache.get_or_set(f"neighbours:{pk}", neighbours, tags=("cities",)),
            "reach_km": figures.NEIGHBOURHOOD_KM,
        },
    )


def summaries(request: AtlasRequest) -> JsonResponse:
    """Return the summaries of the cities with the given ids, for a map. One query reads those that are not cached."""
    given = [each for each in request.GET.getlist("id")[:MOST_SUMMARIES] if each.isdecimal() and len(each) < 10]
    keys = {f"summary:{pk}": pk for pk in map(int, given)}
    found = cache.get_many(keys)
    missing = [pk for key, pk in keys.items() if key not in found]
    if missing:
        request.computed.append(f"{len(missing)} summaries")
        new = {f"summary:{each['id']}": each for each in figures.summaries(missing)}
        cache.set_many(new, tags=("cities",))
        found |= new
    return JsonResponse({"cities": list(found.values())})


def statistics(request: AtlasRequest) -> HttpResponse:
    """Show a statistic that takes most of a second. Of several concurrent requests, one computes it."""

    def distances() -> Distances:
        request.computed.append("half a million distances")
        return figures.city_distances()

    found = cache.get_or_set("distances", distances, 3600, tags=("cities",))
    return render(request, "atlas/statistics.html", {"distances": found})


async def continent(request: AtlasRequest, code: str) -> HttpResponse:
    """Show a continent, with an async loader. An unknown one is not cached: a loader that raises stores nothing."""

    async def load() -> figures.Figures:
        request.computed.append("the continent's figures")
        return await figures.continent(code)

    try:
        loaded = await cache.aget_or_set(f"continent:{code}", load, tags=("cities",))
    except Continent.DoesNotExist:
        raise Http404(f"There is no continent {code!r}.") from None
    return render(request, "atlas/continent.html", loaded)


@require_POST
def empty_cache(request: AtlasRequest) -> HttpResponse:
    """Empty the cache. This needs no CSRF token, since there is nothing to protect."""
    cache.clear()
    return redirect("home")
