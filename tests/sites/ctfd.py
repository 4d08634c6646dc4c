"""CTFd, with the data of its populate.py."""

from tests.sites.site import Site

CONFIG = """
from CTFd.config import Config


class CachedConfig(Config):
    CACHE_TYPE = "wheelcache.flask_backend.HostCache"
"""

CACHED = """
from gevent import monkey

monkey.patch_all()

from CTFd import create_app
from wheelcache.flask_backend import HTTPCache
from wheelcache.pages import bypass, grace, ttl, without_cookies

application = create_app("cached_config.CachedConfig")
pages = HTTPCache({options})
pages.init_app(application)
"""

SET_UP = """{"setup": true, "ctf_name": "A contest", "user_mode": "teams", "ctf_theme": "core"}"""

CTFD = Site(
    name="CTFd",
    repository="https://github.com/CTFd/CTFd",
    commit="91ced62d44d3ec3142a0948ee96ed19947cfc979",
    plain="from wsgi import app as application\n",
    cached=CACHED,
    modules={"cached_config": CONFIG},
    also_installed=("Faker==4.1.0", "pytest", "pytest-randomly"),
    gunicorn=["--worker-class", "gevent"],
    environment={
        "SECRET_KEY": "secret",
        "PRESET_CONFIGS": SET_UP,
        "PRESET_ADMIN_NAME": "admin",
        "PRESET_ADMIN_EMAIL": "admin@example.com",
        "PRESET_ADMIN_PASSWORD": "password",
    },
    prepare=[["populate.py", "--users=20", "--teams=5", "--challenges=10"]],
    rehearsal=["-m", "flask", "--app", "cached_site:application", "wheelcache", "rehearsal"],
    log_in=("/login", {"name": "admin", "password": "password"}),
    without=r"/(themes|files|logout|admin|setup)",
)
