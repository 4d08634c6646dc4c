"""The pages, each cached in another of Django's ways. What a page has to compute, it notes in ``request.computed``."""

from django.conf import settings
from django.core.cache import cache
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import cache_page
from django.views.decorators.http import require_POST

from atlas import figures
from atlas.geography import Distances
from atlas.middleware import RECENT, AtlasRequest
from atlas.models import City, Continent, Country


def home(request: AtlasRequest) -> HttpResponse:
    """A cached fragment of a page that is otherwise the visitor's own."""
    if not City.objects.exists():
        return render(request, "atlas/empty.html", status=503)

    def world() -> figures.Figures:
        request.computed.append("the world")
        return figures.world()

    codes = request.session.get(RECENT, [])
    seen = Country.objects.in_bulk(codes)
    recent = [seen[code] for code in codes if code in seen]
    return render(request, "atlas/home.html", {"load_world": world, "recent": recent})


@cache_page(settings.PAGE_SECONDS)
def country(request: AtlasRequest, code: str) -> HttpResponse:
    """A page that is cached whole, for all visitors together."""
    found = get_object_or_404(Country.objects.select_related("continent"), pk=code)
    request.computed.append("the country's figures")
    return render(request, "atlas/country.html", {"country": found, **figures.country(found)})


def city(request: AtlasRequest, pk: int) -> HttpResponse:
    """A row that is read afresh, and what is costly about it from the cache."""
    found = get_object_or_404(City.objects.select_related("country__continent"), pk=pk)

    def neighbours() -> list[tuple[float, City]]:
        request.computed.append("the nearest cities")
        return figures.neighbours(found)

    return render(
        request,
        "atlas/city.html",
        {
            "city": found,
            "neighbours": cache.get_or_set(f"neighbours:{pk}", neighbours),
            "reach_km": figures.NEIGHBOURHOOD_KM,
        },
    )


def statistics(request: AtlasRequest) -> HttpResponse:
    """A statistic that takes most of a second. However many ask for it at once, one of them computes it."""

    def distances() -> Distances:
        request.computed.append("half a million distances")
        return figures.city_distances()

    return render(request, "atlas/statistics.html", {"distances": cache.get_or_set("distances", distances, 3600)})


async def continent(request: AtlasRequest, code: str) -> HttpResponse:
    """An async view with an async loader. An unknown continent is not cached: a loader that raises stores nothing."""

    async def load() -> figures.Figures:
        request.computed.append("the continent's figures")
        return await figures.continent(code)

    try:
        loaded = await cache.aget_or_set(f"continent:{code}", load)
    except Continent.DoesNotExist:
        raise Http404(f"There is no continent {code!r}.") from None
    return render(request, "atlas/continent.html", loaded)


@require_POST
def empty_cache(request: AtlasRequest) -> HttpResponse:
    """Empties the cache. It asks for no CSRF token: there is nothing to protect."""
    cache.clear()
    return redirect("home")
