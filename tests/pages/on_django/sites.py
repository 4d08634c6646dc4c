"""A Django site behind an HTTP cache, on each of its servers' interfaces."""

from io import BytesIO

from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler

from tests.pages.site import AsgiSite, WsgiSite, answer_of, site_on
from wheelcache.pages.django_pages import COMPANION, make_cache

MIDDLEWARE = [
    COMPANION,
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]


class DjangoOnWsgi(WsgiSite):
    def __init__(self, clock, **options):
        self.cache = make_cache(site_on(clock, has_companion=True), "pages", options)
        self.app = self.cache.wsgi(WSGIHandler())

    def ask(self, *parts):
        # Without wsgiref's validator, which refuses other classes of environ than dict.
        return answer_of(self.app, {**self.environ(*parts), "wsgi.input": BytesIO(parts[-1])})


class DjangoOnAsgi(AsgiSite):
    def __init__(self, clock, **options):
        self.cache = make_cache(site_on(clock, has_companion=True), "pages", options)
        self.app = self.cache.asgi(ASGIHandler())


class AsyncAroundSync(DjangoOnAsgi):
    """A middleware that is not async makes Django call all of them in a thread."""

    def __init__(self, clock, **options):
        settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.not_async"]
        super().__init__(clock, **options)


def not_async(get_response):
    return lambda request: get_response(request)


SITES = {
    "wsgi": DjangoOnWsgi,
    "asgi": DjangoOnAsgi,
    "asgi, with a middleware that is not async": AsyncAroundSync,
}


def logged_in(site, name):
    cookie = site.get(f"/login?name={name}")["set-cookie"].partition(";")[0].strip()
    return {"Cookie": cookie}


ONE, OTHER = "a" * 32, "b" * 32
