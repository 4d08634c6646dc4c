"""One run of the application for many requests: collapsed requests, cancelled leaders, renewals, lost clients."""

import asyncio
import threading

import pytest

from tests.pages.site import AsgiSite, Response, WsgiSite, leaving_client
from tests.waiting import PATIENCE, join, start, until
from wheelcache.pages import pages
from wheelcache.pages.wsgi import RENEWALS, renewal_pool

CLIENTS = 100
USUAL = [(b"cache-control", b"max-age=60")]


class SlowSite(AsgiSite):
    """An ASGI site whose application waits until it may answer.

    Attributes:
        may_answer: an event.
        headers, bodies: of the response.
        after: awaited by the application after its last message.
    """

    def __init__(self, clock, **options):
        super().__init__(clock, **options)
        self.may_answer = asyncio.Event()
        self.headers = USUAL
        self.bodies = [b"page"]
        self.received = []
        self.after = None

    async def application(self, scope, receive, send):
        self.requests.append(scope)
        self.received.append(await receive())
        await self.may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        for number, body in enumerate(self.bodies):
            more = number + 1 < len(self.bodies)
            await send({"type": "http.response.body", "body": body, "more_body": more})
        if self.after is not None:
            await self.after

    def start(self, target="/", headers=()):
        return asyncio.ensure_future(self.ask_async(*self.parts(target, headers)))


async def settle():
    """Let all tasks go on until they wait."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def slow(clock, closed):
    """Run a coroutine function with a new ``SlowSite``."""

    def run(function, **options):
        async def main():
            site = SlowSite(clock, **options)
            closed(site.cache.cache)
            async with asyncio.timeout(PATIENCE):
                await function(site)

        asyncio.run(main())

    return run


def test_requests_for_a_cold_page_cause_one_run(slow):
    async def main(site):
        clients = [site.start() for _ in range(CLIENTS)]
        await settle()
        site.may_answer.set()
        answers = await asyncio.gather(*clients)
        assert {answer.body for answer in answers} == {b"page"}
        assert (site.runs, site.stats().collapsed) == (1, CLIENTS - 1)

    slow(main)


def test_no_request_waits_for_one_with_authorization_nor_the_other_way_round(slow):
    """Its response may not be storable, although the page of the others is."""

    async def main(site):
        authorized = {"authorization": "Basic YTpi"}
        clients = [site.start(headers=headers) for headers in (authorized, {}, authorized)]
        await settle()
        assert site.runs == 3
        site.may_answer.set()
        await asyncio.gather(*clients)
        assert site.stats().collapsed == 0

    slow(main)


def test_no_request_waits_for_an_expired_page_that_may_be_stale(slow, clock):
    async def main(site):
        site.headers = [(b"cache-control", b"max-age=60, stale-while-revalidate=60")]
        site.may_answer.set()
        await site.start()
        clock.advance(60)
        site.may_answer.clear()
        # None of these waits, since the application does not answer.
        answers = await asyncio.gather(*(site.start() for _ in range(CLIENTS)))
        assert {answer.body for answer in answers} == {b"page"}
        assert site.runs == 2
        site.may_answer.set()
        await settle()
        assert (await site.start())["age"] == "0"
        assert site.runs == 2

    slow(main)


def test_a_follower_with_other_values_runs_the_application_itself_and_waits_once(slow):
    async def main(site):
        site.headers = [*USUAL, (b"vary", b"accept-language")]
        clients = [site.start(headers={"accept-language": language}) for language in ("de", "en", "de", "fr")]
        await settle()
        assert site.runs == 1
        site.may_answer.set()
        await asyncio.gather(*clients)
        assert (site.runs, site.stats().collapsed) == (3, 1)

    slow(main)


def test_followers_of_a_page_that_cannot_be_stored_are_released_when_its_response_begins(slow):
    async def main(site):
        site.headers = [(b"cache-control", b"private")]
        site.bodies = [b"a", b"b"]
        never = asyncio.get_running_loop().create_future()
        site.after = never
        clients = [site.start() for _ in range(10)]
        await settle()
        assert site.runs == 1
        site.may_answer.set()
        await settle()
        assert site.runs == 10
        # The next requests do not even begin to wait.
        site.may_answer.clear()
        clients += [site.start() for _ in range(10)]
        await settle()
        assert site.runs == 20
        site.may_answer.set()
        never.set_result(None)
        await asyncio.gather(*clients)

    slow(main)


def test_followers_are_released_by_the_last_message_and_not_by_the_end_of_background_work(slow):
    async def main(site):
        site.after = never = asyncio.get_running_loop().create_future()
        clients = [site.start() for _ in range(10)]
        site.may_answer.set()
        await asyncio.gather(*clients[1:])
        assert site.runs == 1
        never.set_result(None)
        await clients[0]

    slow(main)


def test_a_wait_is_bounded(slow):
    async def main(site):
        clients = [site.start() for _ in range(3)]
        assert await asyncio.to_thread(until, lambda: site.runs == 3)
        site.may_answer.set()
        await asyncio.gather(*clients)

    slow(main, wait=0.01)


def test_if_the_leading_request_is_cancelled_one_other_runs_the_application(slow):
    async def main(site):
        clients = [site.start() for _ in range(21)]
        await settle()
        clients[0].cancel()
        await settle()
        assert site.runs == 2
        site.may_answer.set()
        answers = await asyncio.gather(*clients[1:])
        assert {answer.body for answer in answers} == {b"page"}
        assert site.runs == 2

    slow(main)


def test_no_task_waits_long_for_a_page_that_may_replace_an_error(slow, clock):
    async def main(site):
        site.may_answer.set()
        await site.start()
        clock.advance(60)
        site.may_answer.clear()
        answers = await asyncio.gather(*(site.start() for _ in range(10)))
        assert {(answer.body, answer.detail) for answer in answers} == {(b"page", "hit; ttl=0; detail=slow")}
        assert site.runs == 2
        assert site.requests[1]["client"] == ("192.0.2.0", 0)
        site.may_answer.set()
        await settle()
        assert (await site.start()).detail == "hit; ttl=60"
        assert site.runs == 2

    slow(main, serve_stale_after=0.01, fail_safe=60)


def test_a_cancelled_follower_leaves_the_others_alone(slow):
    async def main(site):
        clients = [site.start() for _ in range(5)]
        await settle()
        clients[1].cancel()
        clients[0].cancel()
        await settle()
        assert site.runs == 2
        site.may_answer.set()
        await asyncio.gather(*clients[2:])
        assert site.runs == 2

    slow(main)


def test_a_client_that_disconnects_does_not_end_a_run(slow):
    async def main(site):
        gone, receive = leaving_client()

        async def send(message):
            raise OSError("the client has disconnected")

        async def application(scope, receive, send):
            site.requests.append(scope)
            listening = asyncio.ensure_future(receive())
            await asyncio.wait(
                [listening, asyncio.ensure_future(site.may_answer.wait())], return_when="FIRST_COMPLETED"
            )
            assert not listening.done()
            await send({"type": "http.response.start", "status": 200, "headers": USUAL})
            await send({"type": "http.response.body", "body": b"page"})
            listening.cancel()

        app = site.cache.asgi(application)
        leader = asyncio.ensure_future(app(site.scope("GET", "/", "", [("Host", "example.com")]), receive, send))
        await settle()
        follower = site.start()
        await settle()
        gone.set()
        await settle()
        site.may_answer.set()
        await leader
        assert (await follower).body == b"page"
        assert site.runs == 1

    slow(main)


def test_a_client_that_disconnects_ends_a_stream_that_cannot_be_stored(slow):
    async def main(site):
        gone, receive = leaving_client()

        async def events(scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            assert (await receive())["type"] == "http.disconnect"

        async def send(message):
            gone.set()

        await site.cache.asgi(events)(site.scope("GET", "/", "", [("host", "example.com")]), receive, send)

    slow(main)


def test_the_renewal_of_a_task_knows_nothing_of_its_client(slow, clock):
    async def main(site):
        site.headers = [(b"cache-control", b"max-age=60, stale-while-revalidate=60")]
        site.may_answer.set()
        await site.start()
        clock.advance(60)
        scope = site.scope("GET", "/", "", [("host", "example.com"), ("cookie", "a=b")])
        scope["extensions"] = {"http.response.push": {}}

        async def nothing(*message):
            return None

        await site.app(scope, nothing, nothing)
        await settle()
        assert site.runs == 2
        assert site.received[1] == {"type": "http.request", "body": b"", "more_body": False}
        renewal = site.requests[1]
        assert "extensions" not in renewal
        assert (renewal["client"], renewal["headers"]) == (("192.0.2.0", 0), [(b"host", b"example.com")])

    slow(main)


def test_beyond_the_most_runs_no_request_waits(slow, monkeypatch):
    monkeypatch.setattr(pages, "MOST_RUNS", 1)

    async def main(site):
        clients = [site.start(path) for path in ("/first", "/first", "/second", "/second")]
        await settle()
        assert site.runs == 3
        site.may_answer.set()
        await asyncio.gather(*clients)

    slow(main)


# Threads.


def test_threads_that_ask_for_a_cold_page_cause_one_run(wsgi):
    may_answer = threading.Event()
    bodies = []

    def respond(request):
        assert may_answer.wait(PATIENCE)
        return Response()

    wsgi.respond = respond
    threads = [start(lambda: bodies.append(wsgi.get().body)) for _ in range(20)]
    assert until(lambda: wsgi.runs == 1)
    may_answer.set()
    join(*threads)
    assert bodies == [b"page"] * 20
    assert wsgi.runs == 1


def test_no_thread_waits_for_an_expired_page_that_may_be_stale(wsgi, clock):
    may_answer = threading.Event()
    may_answer.set()

    def respond(request):
        assert may_answer.wait(PATIENCE)
        return Response(headers={"cache-control": "max-age=60, stale-while-revalidate=60"})

    wsgi.respond = respond
    wsgi.get()
    clock.advance(60)
    may_answer.clear()
    for _ in range(20):
        assert wsgi.get().body == b"page"
    may_answer.set()
    assert until(lambda: not renewal_pool.pending)
    assert wsgi.runs == 2
    assert wsgi.get()["age"] == "0"


def test_the_renewal_of_a_thread_has_a_clean_environ_and_closes_its_response(wsgi, clock):
    environs, closed = [], []

    class Body(list):
        def close(self):
            closed.append(threading.current_thread().name)

    def application(environ, start_response):
        environs.append(environ)
        start_response("200 OK", [("Cache-Control", "max-age=60, stale-while-revalidate=60")])
        return Body([b"page"])

    app = wsgi.cache.wsgi(application)
    for _ in range(2):
        environ = wsgi.environ("GET", "/", "a=b", [("Host", "example.com"), ("Cookie", "a=b")], b"")
        environ |= {"gunicorn.socket": object(), "wsgi.early_hints": object()}
        iterable = app(environ, lambda *response: None)
        assert b"".join(iterable) == b"page"
        if hasattr(iterable, "close"):
            iterable.close()
        clock.advance(60)
    assert until(lambda: len(closed) == 2)
    renewal = environs[1]
    assert closed[1].startswith("wheelcache-pages")
    assert {"gunicorn.socket", "wsgi.early_hints", "HTTP_COOKIE"}.isdisjoint(renewal)
    # As under ASGI, so that a log of addresses does not fail.
    assert renewal["REMOTE_ADDR"] == "192.0.2.0"
    assert (renewal["wsgi.input"].read(), renewal["QUERY_STRING"], renewal["HTTP_HOST"]) == (b"", "a=b", "example.com")


def test_no_thread_waits_long_for_a_page_that_may_replace_an_error(clock):
    # A thread may take long to begin the run, which must come before the requests give up.
    site = WsgiSite(clock, serve_stale_after=1, fail_safe=60)
    site.get()
    clock.advance(60)
    may_answer = threading.Event()

    def respond(request):
        assert may_answer.wait(PATIENCE)
        return Response(b"new")

    site.respond = respond
    answers = []
    join(*[start(lambda: answers.append(site.get())) for _ in range(10)])
    assert {(answer.body, answer.detail) for answer in answers} == {(b"page", "hit; ttl=0; detail=slow")}
    assert site.runs == 2
    may_answer.set()
    # A visitor who comes just when the run ends may begin another one.
    assert until(lambda: not renewal_pool.pending)
    assert site.get().body == b"new"
    assert site.runs == 2


def test_no_thread_waits_long_for_a_page_although_all_renewals_are_slow(clock, caplog):
    """Not even for a page whose renewal has not begun."""
    site = WsgiSite(clock, serve_stale_after=0.01, fail_safe=60)
    targets = [f"/{number}" for number in range(RENEWALS + 2)]
    for target in targets:
        site.get(target)
    clock.advance(60)
    may_answer = threading.Event()

    def respond(request):
        assert may_answer.wait(PATIENCE)
        return Response(b"new")

    site.respond = respond
    answers = []
    join(*[start(lambda: answers.extend(site.get(target) for target in targets)) for _ in range(2)])
    assert {(answer.body, answer.detail) for answer in answers} == {(b"page", "hit; ttl=0; detail=slow")}
    assert "Pages are not renewed" in caplog.text
    may_answer.set()
    assert until(lambda: not renewal_pool.pending)
    assert until(lambda: {site.get(target).body for target in targets} == {b"new"})


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_page_that_was_stored_since_the_look_up_is_not_made_again(clock, number):
    """Another visitor gets the page while this one asks for the time, as between any two steps."""
    steps = []

    def asked():
        if steps and steps.pop() == "visit":
            assert site.get_unchecked().body == b"page"
        return clock()

    site = WsgiSite(asked)
    site.cache.cache.clear()
    steps += [*["visit", *["go on"] * (number - 1)]]
    assert site.get_unchecked().body == b"page"
    assert (site.runs, steps) == (1, [])


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_page_that_was_renewed_since_the_look_up_is_not_renewed_again(clock, number):
    """Another visitor has the page renewed while this one asks for the time, as between any two steps."""
    steps = []

    def asked():
        if steps and steps.pop() == "visit":
            visit()
        return clock()

    def visit():
        assert site.get_unchecked().body == b"page"
        assert until(lambda: not renewal_pool.pending)

    site = WsgiSite(asked)
    site.respond = lambda request: Response(headers={"cache-control": "max-age=60, stale-while-revalidate=60"})
    visit()
    clock.advance(61)
    steps += [*["visit", *["go on"] * (number - 1)]]
    visit()
    assert (site.runs, steps) == (2, [])


@pytest.fixture
def patient(clock, closed):
    """A site whose requests would wait for each other longer than the test."""
    site = WsgiSite(clock, wait=100 * PATIENCE)
    closed(site.cache.cache)
    return site


def test_an_application_that_requests_its_own_page_does_not_wait_for_itself(patient):
    def respond(request):
        return Response(b"inner") if patient.runs > 1 else Response(b"outer, " + patient.get_unchecked().body)

    patient.respond = respond
    bodies = []
    join(start(lambda: bodies.append(patient.get_unchecked().body)))
    assert bodies == [b"outer, inner"]


def test_no_request_waits_for_the_run_of_an_event_loop_that_has_stopped(clock):
    site = SlowSite(clock, wait=100 * PATIENCE)

    async def begin():
        site.start()
        await settle()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())

    async def main():
        site.may_answer.set()
        async with asyncio.timeout(PATIENCE):
            assert (await site.start()).body == b"page"

    asyncio.run(main())
    assert site.runs == 2
    loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(loop)))
    loop.close()


def test_a_request_does_not_wait_for_a_renewal_without_a_thread_which_it_replaces(patient, clock):
    hung, may_answer = threading.Semaphore(0), threading.Event()

    def respond(request):
        if clock() and request.path != "/":
            hung.release()
            assert may_answer.wait(PATIENCE)
        return Response(headers={"cache-control": "max-age=60, stale-while-revalidate=60"})

    patient.respond = respond
    paths = ["/slow", "/slower", "/"]
    for path in paths:
        patient.get_unchecked(path)
    clock.advance(60)
    for path in paths:
        patient.get_unchecked(path)
    for _ in paths[:2]:
        assert hung.acquire(timeout=PATIENCE)
    clock.advance(60)
    join(start(lambda: patient.get_unchecked("/")))
    may_answer.set()
    assert until(lambda: not renewal_pool.pending)
    assert [request.path for request in patient.requests].count("/") == 2
