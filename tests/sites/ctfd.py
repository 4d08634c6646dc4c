"""CTFd, with the data of its populate.py."""

from tests.sites.site import Site

TESTS = ["tests/cache", "tests/test_themes.py", "tests/test_views.py"]
TESTS_CONFIG = """
from CTFd.config import TestingConfig

TestingConfig.CACHE_TYPE = "wheelcache.flask_backend.HostCache"
"""

SET_UP = """
import re
from CTFd import create_app

client = create_app().test_client()
nonce = re.search(r'name="nonce"[^>]*value="([^"]*)"', client.get("/setup").text)[1]
admin = {"name": "admin", "email": "admin@example.com", "password": "password"}
contest = {"ctf_name": "A contest", "user_mode": "teams", "ctf_theme": "core"}
assert client.post("/setup", data={**contest, **admin, "nonce": nonce}).status_code == 302
"""

CACHED = """
from gevent import monkey

monkey.patch_all()

from CTFd import create_app
from CTFd.config import Config
from wheelcache.flask_backend import HTTPCache
from wheelcache.pages import bypass, grace, ttl, without_cookies

Config.CACHE_TYPE = "wheelcache.flask_backend.HostCache"
application = create_app()
pages = HTTPCache({options})
pages.init_app(application)
"""

CTFD = Site(
    name="CTFd",
    repository="https://github.com/CTFd/CTFd",
    commit="91ced62d44d3ec3142a0948ee96ed19947cfc979",
    plain="from wsgi import app as application\n",
    cached=CACHED,
    also_installed=("Faker==4.1.0", "pytest"),
    gunicorn=["--worker-class", "gevent"],
    # Otherwise, the URLs of its scripts contain the minute in which a worker started.
    environment={"SECRET_KEY": "secret", "RUN_ID": "sites", "FLASK_APP": "cached_site:application"},
    prepare=[["-c", SET_UP], ["populate.py", "--users=20", "--teams=5", "--challenges=10"]],
    rehearsal=["-m", "flask", "wheelcache", "rehearsal"],
    log_in=("/login", {"name": "admin", "password": "password"}),
    varies=(r"'csrfNonce': \"[0-9a-f]+\"", r'value="[0-9a-f]{64}"'),
    cannot_gain="every new session gets a nonce at `CTFd/utils/initialization/__init__.py:392`",
    without=r"/(themes|files|logout|admin|setup)",
)
