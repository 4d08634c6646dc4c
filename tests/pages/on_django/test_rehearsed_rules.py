"""A rehearsal ends with a block of rules and options. Pasted as it is, the pages are hits, and none is wrong."""

import random
from itertools import count

import pytest
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import path, re_path
from django.utils.deprecation import MiddlewareMixin
from django.views.decorators.cache import cache_control

from tests.pages.on_django.pages_site import login
from tests.pages.on_django.sites import MIDDLEWARE
from tests.pages.on_django.token_site import FORM, rendered
from tests.pages.site import running_loop
from tests.waiting import until
from wheelcache.watch.page_commands import rehearsal
from wheelcache.watch.site import Own, Site

numbers = count()


class RealAddress(MiddlewareMixin):
    """Keeps the address of the visitor in the request, and an entry for a log."""

    def process_request(self, request):
        request.address = request.META.get("HTTP_X_FORWARDED_FOR") or request.META["REMOTE_ADDR"]
        request.agent = request.META.get("HTTP_USER_AGENT")


def page(request, slug=""):
    return HttpResponse(f"<h1>Page {request.path}</h1>\n<p>Welcome</p>")


def form(request):
    return rendered(request, FORM)


def product(request, slug):
    response = page(request)
    response.set_cookie("history", f"{request.COOKIES.get('history', '')}.{slug}")
    return response


def recent(request, slug):
    response = HttpResponse(f"<h1>Recent</h1>\n<p>{request.COOKIES.get('seen', 'nothing')}</p>")
    response.set_cookie("seen", slug)
    return response


@cache_control(max_age=60)
def address(request):
    return HttpResponse(f"<h1>You</h1>\n<p>{request.address}</p>")


def basket(request):
    request.session["basket"] = [*request.session.get("basket", []), "chair"]
    return HttpResponse("<h1>Basket</h1>")


urlpatterns = [
    path("", page, name="home"),
    path("news/<int:year>/<slug:slug>/", lambda request, year, slug: page(request), name="news"),
    re_path(r"^t/(?P<slug>[\w-]+)/$", page, name="thread"),
    path("form/", form, name="form"),
    path("product/<slug:slug>/", product, name="product"),
    path("recent/<slug:slug>/", recent, name="recent"),
    path("address/", address, name="address"),
    path("basket/", basket, name="basket"),
    path("old/", lambda request: HttpResponseRedirect("/"), name="old"),
    path("login", login),
]

PAGES = ["/", "/news/2026/a/", "/news/2025/b/?utm_source=mail", "/t/one/", "/t/two/", "/form/", "/product/chair/"]
OTHERS = ["/recent/chair/", "/recent/table/", "/address/", "/basket/", "/old/", "/nowhere"]


@pytest.fixture
def site_of(make_site, site_settings, tmp_path, clock):
    site_settings.ROOT_URLCONF = __name__
    site_settings.MIDDLEWARE = [*MIDDLEWARE, f"{__name__}.RealAddress"]
    with running_loop() as loop:

        def make(**options):
            site = make_site(figures_dir=tmp_path / "figures", **options)
            site.loop = loop
            return site

        yield make


class Visitor:
    """A browser, with its cookies."""

    def __init__(self, number):
        self.headers = {"User-Agent": f"Browser/{number}", "X-Forwarded-For": f"198.51.100.{number}"}
        self.cookies = {"_ga": f"GA1.{number}"}

    def get(self, site, target):
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        answer = site.get(target, {**self.headers, "Cookie": cookie})
        if "set-cookie" in answer.headers:
            name, _, value = answer["set-cookie"].partition(";")[0].partition("=")
            self.cookies[name.strip()] = value
        return answer


def visits(site, targets, number=12):
    """Let each of some visitors request all pages, and return the answers."""
    generator = random.Random(1)
    found = []
    for each in range(number):
        visitor = Visitor(each)
        order = generator.sample(targets, len(targets))
        found += [(target, visitor, visitor.get(site, target)) for target in order]
    return found


def comparisons_are_over(site, clock):
    clock.advance(5)
    rehearsal = site.cache.pages.rehearsal
    return not rehearsal._comparisons


def is_published(site):
    # The comparisons may have taken minutes of the clock, after which the jobs of an idle cache pause until a write.
    site.cache.cache.engine.observed.observer.publication.run_now()
    (found,) = Site([site.cache.cache], Own.NONE).rehearsed().values()
    counts = site.cache.pages.rehearsal.counts()
    return {key: each.number for key, each in found.items()} == {key: each.number for key, each in counts.items()}


def result_of(site, clock):
    assert until(lambda: comparisons_are_over(site, clock), 30)
    assert until(lambda: is_published(site), 30)
    (found,) = rehearsal([site.cache.cache], None).document
    return found


def pasted(block):
    """Return the options that a block adds to the call of ``page_cache``."""
    imports, _, arguments = block.partition("\n\n")
    names = {}
    exec(imports, names)
    return eval(f"dict({arguments})", names)


def test_the_block_of_the_first_rehearsal_suffices(site_of, clock):
    site = site_of(rehearse=1)
    visits(site, PAGES + OTHERS)
    found = result_of(site, clock)
    assert found["verdict"] == "apply"
    block = found["block"]
    for line in (
        "from wheelcache.pages import TRACKING, ",
        '("/news/*/*/", ttl(60)),',
        '("/t/*/", ttl(60)),',
        '("/product/*/", without_cookies("history")),',
        f'"{__name__}.RealAddress",',
    ):
        assert line in block
    for unsafe in ("recent", "/basket/", "/old/", "/nowhere", "sessionid"):
        assert f"{unsafe}" not in block
    assert '("/address/", bypass())' in block
    served = site_of(**pasted(block))
    for target, _, answer in visits(served, PAGES):
        assert f"Page {target.partition('?')[0]}".encode() in answer.body or target == "/form/"
    stats = served.stats()
    assert stats.fresh >= 0.9 * 12 * len(PAGES) - len(PAGES)
    for target, visitor, answer in visits(served, ["/address/", *OTHERS]):
        if target == "/address/":
            assert visitor.headers["X-Forwarded-For"].encode() in answer.body
