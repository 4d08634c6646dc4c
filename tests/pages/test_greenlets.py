"""Under gevent, requests that wait and renewals are greenlets, and block no other one."""

from tests.scripts import run_python

SCRIPT = """
from gevent import monkey; monkey.patch_all()

import threading
import time

import gevent
from gevent.event import Event

from wheelcache import ManualClock
from wheelcache.pages.http_cache import PageCache
from wheelcache.pages.options import Options
from wheelcache.pages.site import Site
from wheelcache.pages.wsgi import renewal_pool

clock = ManualClock()
may_answer = Event()
runs = []


def application(environ, start_response):
    runs.append(threading.current_thread().name)
    may_answer.wait(60)
    start_response("200 OK", [("Cache-Control", "max-age=60, stale-while-revalidate=60")])
    return [b"page"]


app = PageCache(Options(), Site(clock=clock)).wsgi(application)


def ask():
    environ = {"REQUEST_METHOD": "GET", "wsgi.url_scheme": "http", "HTTP_HOST": "a", "PATH_INFO": "/"}
    return b"".join(app(environ, lambda *response: None))


clients = [gevent.spawn(ask) for _ in range(20)]
gevent.sleep(0)
may_answer.set()
gevent.joinall(clients, timeout=60, raise_error=True)
assert {client.value for client in clients} == {b"page"}
assert len(runs) == 1, runs

clock.advance(60)
may_answer.clear()
assert ask() == b"page"
may_answer.set()
deadline = time.monotonic() + 60
while renewal_pool.pending and time.monotonic() < deadline:
    gevent.sleep(0.01)
assert runs[1:] == ["wheelcache-pages"], runs
"""


def test_one_greenlet_makes_a_page_and_another_one_renews_it():
    done = run_python("-c", SCRIPT)
    assert done.returncode == 0, done.stderr
