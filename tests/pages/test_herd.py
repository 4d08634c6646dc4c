"""Many requests at the same time, in threads: each variant is made once, and nobody waits needlessly.

The application waits at a gate. The gate opens when all requests wait, for the application or for another one's run.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLate
from contextlib import suppress

import pytest

from tests.pages.site import STALE, Response, WsgiSite, answering, maker, settle
from tests.waiting import PATIENCE, current_frames, join, start, until
from wheelcache.pages.wsgi import renewal_pool
from wheelcache.runtime.alarm import Alarm

LANGUAGES = ["de", "en", "fr", "it"]
REQUESTS = [("/", {"accept-language": language}) for language in LANGUAGES * 25]
FEW = PATIENCE / 2
"""Seconds within which a request is answered that need not wait."""


class Threads(WsgiSite):
    """Requests in threads.

    Attributes:
        started: how often the application has begun to run.
        hanging: the paths whose application does not answer until ``release``.
    """

    def __init__(self, clock, **options):
        super().__init__(clock, **options)
        self.started = self.opened = 0
        self.hanging = set()
        self.is_gated = False
        self.gate = threading.Condition()

    def application(self, environ, start_response):
        with self.gate:
            self.started += 1
            opened, path = self.opened, environ["PATH_INFO"]
            self.gate.wait_for(lambda: path not in self.hanging and self.is_gated <= self.opened - opened, PATIENCE)
        return super().application(environ, start_response)

    def open(self):
        with self.gate:
            self.opened += 1
            self.gate.notify_all()

    def together(self, requests):
        """Make requests at the same time. Return how often the application ran."""
        before, self.is_gated = self.started, True
        threads = [start(self.get_unchecked, *request) for request in requests]
        while any(thread.is_alive() for thread in threads) or renewal_pool.pending:
            assert until(lambda: all_wait(threads))
            self.open()
        self.is_gated = False
        return self.started - before

    def hang(self, *paths):
        """Make requests for pages that hang, and wait until these run."""
        self.hanging, before = {*paths}, self.started
        self.hung = [start(self.get_unchecked, path) for path in paths]
        assert until(lambda: self.started == before + len(paths))

    def release(self):
        self.hanging = set()
        self.open()
        join(*self.hung)
        settle()

    def in_time(self, *requests):
        """Make requests one after the other. Return the number of those that are answered within ``FEW`` seconds."""
        answered = []
        pool = ThreadPoolExecutor(1)
        with suppress(TooLate):
            pool.submit(lambda: answered.extend(self.get_unchecked(*request) for request in requests)).result(FEW)
        count = len(answered)
        self.release()
        pool.shutdown()
        return count


WAITS = {Alarm.wait.__code__, threading.Condition.wait.__code__}


def all_wait(threads):
    """Return whether no thread runs: each has ended, or waits for another one's run or at the gate."""
    frames = current_frames()
    return all(frames[each.ident].f_code in WAITS for each in threads if each.ident in frames)


@pytest.fixture
def make_herd(clock, closed):
    """Return a function that makes a site behind a cache with the given options."""
    return maker(Threads, clock, closed)


@pytest.mark.usefixtures("hasty_interpreter")
def test_a_hundred_requests_in_four_languages_cause_four_runs_cold_expired_and_purged(make_herd, clock):
    herd = make_herd()
    headers = {"cache-control": "max-age=60, stale-while-revalidate=600", "vary": "Accept-Language"}
    herd.respond = lambda request: Response(request.headers.get("accept-language", "none").encode(), headers)
    cold = herd.together(REQUESTS)
    # Each of the others waited, and perhaps again for the run of its own language.
    assert herd.stats().collapsed == 96
    clock.advance(61)
    expired = herd.together(REQUESTS)
    assert herd.cache.purge("https://example.com/") == 4
    assert (cold, expired, herd.together(REQUESTS)) == (4, 4, 4)
    assert [herd.get_unchecked(*request).body.decode() for request in REQUESTS[:4]] == LANGUAGES
    assert herd.together(REQUESTS) == 0


def test_renewals_that_hang_delay_no_other_page(make_herd, clock):
    herd = make_herd(wait=4 * FEW)
    paths = ["/slow", "/slower", "/fast"]
    herd.respond = answering(STALE)
    for path in paths:
        herd.get_unchecked(path)
    clock.advance(61)
    herd.hung, herd.hanging = [], {*paths[:2]}
    # Each of these is answered with the stale page. The first two renewals hang, and the third one finds no thread.
    for path in paths:
        assert herd.get_unchecked(path).detail.startswith("hit")
    clock.advance(60)
    assert herd.in_time(("/fast",)) == 1


def test_a_run_that_no_thread_begins_while_a_request_waits_is_given_up(make_herd, clock, caplog):
    herd = make_herd(serve_stale_after=FEW / 50, fail_safe=600)
    paths = ["/slow", "/slower", "/page"]
    for path in paths:
        herd.get_unchecked(path)
    clock.advance(61)
    herd.hung, herd.hanging = [], {*paths[:2]}
    assert [herd.get_unchecked(path).detail for path in paths] == ["hit; ttl=-1; detail=slow"] * 3
    assert "Pages are not renewed" in caplog.text
    herd.release()
    assert herd.started == 5


def test_no_request_waits_for_an_application_that_hangs_if_there_is_a_stale_page(make_herd, clock):
    # A thread may take long to begin the run, which must come before the request gives up.
    herd = make_herd(serve_stale_after=FEW / 10, fail_safe=600, wait=10)
    herd.get_unchecked()
    clock.advance(61)
    herd.hang("/")
    # The run is overdue.
    clock.advance(11)
    assert herd.in_time(*[("/",)] * 20) == 20
    # One run was begun for each wait.
    assert herd.started == 3
    assert herd.get_unchecked().detail in ("hit; ttl=60", "hit; ttl=49")


def test_after_one_wait_no_request_waits_for_a_run_that_hangs(make_herd):
    herd = make_herd(wait=0.1)
    herd.respond = answering({"cache-control": "private"})
    herd.hang("/")
    herd.hanging = set()
    # Only the first of these waits.
    assert herd.in_time(*[("/",)] * 20) == 20
