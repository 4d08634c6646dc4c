"""A rehearsal serves nothing, and names the pages that would have been wrong."""

import asyncio
import base64
import gzip
import json
import random
from functools import partial
from itertools import count

import pytest

from tests.pages.site import AsgiSite, Response, running_loop
from tests.waiting import until
from wheelcache.pages import rehearsing, ttl, without_cookies
from wheelcache.pages.comparison import LATER, PAUSE, SOON, Comparison
from wheelcache.pages.rehearsal import Answer, Kind, answer_of, compare
from wheelcache.pages.request import NOBODY
from wheelcache.watch import page_commands
from wheelcache.watch.console import CommandFailed
from wheelcache.watch.dashboard.dashboard import Dashboard
from wheelcache.watch.dashboard.permissions import Permission
from wheelcache.watch.dashboard.responses import Request, respond
from wheelcache.watch.publisher import INTERVAL

pytestmark = pytest.mark.pairs(full="make_site", of="make_site")

numbers = count()
LINES = "<h1>Shop</h1>\n<p>Welcome</p>\n<ul>\n<li>one</li>\n<li>two</li>\n</ul>\n"


def outcomes(site):
    """Return the counts of the only view, without those of the obstacles."""
    counts = site.cache.pages.rehearsal.counts().items()
    return {kind: found.number for (view, kind), found in counts if view and not kind.endswith("]")}


def examples(site):
    return {kind: found.example for (_, kind), found in site.cache.pages.rehearsal.counts().items()}


def serving(body, control="max-age=60", **headers):
    """Return an application that answers with ``body(request)``."""

    def respond(request):
        if request.notes is not None:
            request.notes.view = "the view"
        return Response(body(request).encode(), {"cache-control": control, **headers})

    return respond


def noisy(request):
    return f"<p>{next(numbers)}</p>\n{LINES}"


@pytest.fixture
def rehearsed(make_site):
    """Make a site that rehearses. Under ASGI, its event loop runs in a thread, as that of a server does."""
    with running_loop() as loop:

        def make(**options):
            site = make_site(**{"rehearse": 1, **options})
            site.loop = loop
            return site

        yield make


@pytest.fixture
def found(clock):
    """Return whether an outcome is found soon. The time passes in between."""

    def found(site, kind, number=1):
        def is_there():
            clock.advance(0.1)
            return outcomes(site).get(kind, 0) == number

        return until(is_there)

    return found


def store(site, target="/", headers=None):
    """Request a page, and wait until it was compared with the answer to nobody."""
    number = len(site.requests)
    site.get(target, headers or {})
    clock_of(site).advance(0.2)
    assert until(lambda: len(site.requests) >= number + 2)


def test_nothing_is_served(rehearsed):
    site = rehearsed()
    bodies = [site.get().body for _ in range(3)]
    site.respond = serving(noisy)
    bodies = {site.get().body for _ in range(5)}
    assert len(bodies) == 5
    assert site.get().detail == 'fwd=bypass; detail="rehearsal: a hit otherwise"'
    assert site.stats().fresh == 0


LIFETIMES = {
    "fresh": "max-age=600",
    "stale, and renewed in the background": "max-age=1, stale-while-revalidate=600",
    "stale, and sent instead of errors": "max-age=1, stale-if-error=600",
    "validated": "no-cache",
}
REQUESTS = {
    "GET": {},
    "POST": {"method": "POST"},
    **{
        f"{name}: {value}": {"headers": {name: value}}
        for name, value in (
            ("Cache-Control", "only-if-cached"),
            ("Cache-Control", "no-store"),
            ("Authorization", "Basic eDp5"),
            ("Range", "bytes=1-2"),
            ("If-None-Match", '"old"'),
            ("If-None-Match", "*"),
            ("If-Modified-Since", "Tue, 14 Nov 2023 22:13:20 GMT"),
            ("Cookie", "theme=dark"),
        )
    },
    # The last one: no other request replaces what it may have stored.
    "HEAD": {"method": "HEAD"},
}


def answering(control, body, status):
    """Return an application that names the request that it sees, and answers conditions. A status of None raises."""

    def respond(request):
        seen = f"{request.method} {sorted(request.headers.items())}"
        headers = {"cache-control": f"public, {control}", "etag": f'"{body}"', "x-seen": seen}
        if status is None:
            raise LookupError(seen)
        if status == 200 and request.headers.get("if-none-match") == '"old"':
            return Response(b"", headers, 304)
        return Response(b"" if request.method == "HEAD" else body.encode(), headers, status)

    return respond


def answers(site, pause):
    """Return the answers to all kinds of requests, as far as the application makes them."""
    found = {}
    for name, how in REQUESTS.items():
        site.clock.advance(pause)
        try:
            answer = site.get(**how)
        except LookupError as error:
            found[name] = str(error)
        else:
            found[name] = (answer.status, {**answer.headers, "cache-status": None}, answer.body)
    return found


@pytest.mark.parametrize("status", [200, 500, None])
@pytest.mark.parametrize("lifetime", LIFETIMES)
def test_all_answers_are_those_of_the_application(make_site, lifetime, status):
    site = make_site(rehearse=1)
    site.respond = answering(LIFETIMES[lifetime], "old", 200)
    site.get()
    assert outcomes(site)["stored"] == 1
    cached, site.respond = site.app, answering(LIFETIMES[lifetime], "new", status)
    # Later requests also meet the marks that earlier ones have left.
    for pause in (2, 0, 2):
        found, site.app = answers(site, pause), site.application
        expected, site.app = answers(site, 0), cached
        assert found == expected
    site.cache.pages.mode.change("on")
    site.respond = answering(LIFETIMES[lifetime], "old", 200)
    assert site.get().body in (b"old", b"new")


def test_equal_answers_are_counted_by_view(rehearsed):
    site = rehearsed()
    site.respond = serving(lambda request: LINES)
    for _ in range(5):
        site.get()
    assert outcomes(site) == {"stored": 1, "hits": 4, "equal": 4}
    assert {view for view, _ in site.cache.pages.rehearsal.counts()} == {"", "the view"}


def visitor(request):
    return request.headers.get("cookie", "you")


def nonce():
    return base64.b64encode(random.randbytes(16)).decode()


def with_clock(body):
    return lambda request: f"<b nonce={nonce()}></b>{LINES}<i>{next(numbers)}</i>{body(request)}<i>{next(numbers)}</i>"


PERSONAL = {
    "a name": lambda request: f"{LINES}<p>Hello {visitor(request)}</p>",
    "a name after a clock": lambda request: f"<p>{next(numbers)}</p>Hello {visitor(request)}<b>\n",
    "a name and a clock in one line": lambda request: f"<p>Hello {visitor(request)}, {next(numbers)}</p>",
    "a name between two nonces": with_clock(lambda request: LINES * 300 + visitor(request) + LINES * 300),
    "a line before a clock": lambda request: (
        f"{'<p>Hi</p>' * (visitor(request) != 'you')}<p>{next(numbers)}</p>{LINES}"
    ),
    "a missing line": lambda request: LINES if visitor(request) != "you" else LINES.replace("<li>one</li>\n", ""),
    "one line only": visitor,
    "JSON": lambda request: json.dumps({"at": next(numbers), "name": visitor(request)}),
    "a script": lambda request: (
        f"<script nonce={nonce()}>var at = {next(numbers)}, name = '{visitor(request)}'</script>"
    ),
    "an attribute": lambda request: f"<div data-at='{next(numbers)}' data-name='{visitor(request)}'>",
    "space": lambda request: f"{LINES}<pre>{' ' * (1 + ('cookie' in request.headers))}</pre>",
    "a list": lambda request: f"<ul><li>{'</li><li>'.join(random.sample('abcdefgh', 8))}</li></ul>{visitor(request)}",
}


@pytest.mark.parametrize("page", PERSONAL)
def test_a_page_that_shows_the_visitor_is_wrong(rehearsed, found, page):
    site = rehearsed()
    site.respond = serving(PERSONAL[page])
    store(site, "/a?b")
    site.get("/a?b", {"Cookie": "ada"})
    assert found(site, "wrong")
    assert outcomes(site) == {"stored": 1, "hits": 1, "wrong": 1}
    example = examples(site)["wrong"]
    assert example["url"] == "/a?b"
    assert example["stored"] != example["visitor"]


@pytest.mark.parametrize("page", PERSONAL)
def test_a_page_that_shows_the_visitor_for_whom_it_was_made_is_wrong(rehearsed, found, page):
    site = rehearsed()
    site.respond = serving(PERSONAL[page])
    site.get("/a", {"Cookie": "ada"})
    assert found(site, "wrong")


@pytest.mark.parametrize(
    "headers", [{"set-cookie": "seen=1"}, {"content-language": "de"}, {"location": "/x"}, {"x-user": "ada"}]
)
def test_a_header_that_visitors_notice_is_compared(rehearsed, found, headers):
    site = rehearsed()

    def respond(request):
        own = headers if "cookie" in request.headers else {}
        policy = {"content-security-policy": f"script-src 'nonce-{nonce()}'"}
        return serving(lambda request: LINES, **policy, **own)(request)

    site.respond = respond
    store(site)
    site.get("/", {"Cookie": "ada"})
    assert found(site, "wrong")
    (name,) = headers
    found = examples(site)["wrong"]
    assert (found["line"], found["header"]) == (0, name)
    stored = "" if name == "set-cookie" else "(none)"
    assert (found["stored"], found["visitor"]) == (stored, headers[name].partition("=")[0])


@pytest.mark.parametrize("status", [404, 500])
def test_another_status_is_wrong(rehearsed, found, status):
    site = rehearsed()
    site.respond = serving(lambda request: LINES)
    store(site)
    site.respond = lambda request: Response(
        LINES.encode(), {"x-at": str(next(numbers))}, status if "cookie" in request.headers else 200
    )
    site.get("/", {"Cookie": "ada"})
    assert found(site, "wrong")
    assert (examples(site)["wrong"]["header"], examples(site)["wrong"]["visitor"]) == ("status", str(status))


NOISE = {
    "a number": noisy,
    "nonces": lambda request: f"{LINES}<i>{nonce()}</i>{LINES}<b nonce={nonce()}>{LINES}",
    "a shuffled list": lambda request: "<ul><li>" + "</li><li>".join(random.sample("abcdefgh", 8)) + "</li></ul>",
    "a sample": lambda request: "<ul>\n" + "".join(f"<li>{each}</li>\n" for each in random.sample(range(20), 4)),
    "one of two": lambda request: f"{LINES}<p>{random.choice(['tea', 'coffee'])}</p>",
}


@pytest.mark.parametrize("page", NOISE)
def test_clocks_nonces_and_random_lists_are_noise(rehearsed, found, page):
    random.seed(1)
    site = rehearsed()
    site.respond = serving(NOISE[page])
    store(site)
    for _ in range(5):
        site.get()
    assert until(lambda: (clock_of(site).advance(0.1), sum(number_of(site, "noise", "equal", "outdated")))[1] == 5)
    assert "wrong" not in outcomes(site)


def clock_of(site):
    return site.cache.pages.clock


def number_of(site, *kinds):
    return [outcomes(site).get(kind, 0) for kind in kinds]


def test_a_second_that_passes_before_both_reruns_is_noise(rehearsed, found, clock):
    site = rehearsed()
    site.respond = serving(lambda request: f"<p>{int(clock())}</p>")
    store(site)
    clock.advance(1)
    site.get()
    assert found(site, "noise")


@pytest.mark.parametrize("text", ["12:0{}", "2026-11-26 12:0{}:00", "2026-11-2{}", "17956964{}0", "2026-11-26T12:0{}Z"])
def test_a_difference_of_times_is_counted_after_a_minute(rehearsed, clock, text):
    site = rehearsed(rules=[("/*", ttl(600))])
    times = [0, 0, 1, 2, 2]
    site.respond = serving(lambda request: f"<p>at {text.format(times.pop(0) if times else 3)}</p>")
    store(site)
    site.get()
    assert until(lambda: (clock.advance(5), outcomes(site).get("noise"))[1])
    assert "wrong" not in outcomes(site)


def test_a_page_for_all_may_be_outdated(rehearsed, found):
    site = rehearsed()
    site.respond = serving(lambda request: LINES + "old")
    store(site)
    site.respond = serving(lambda request: LINES + "new")
    site.get()
    assert found(site, "outdated")
    assert (examples(site)["outdated"]["stored"], examples(site)["outdated"]["visitor"]) == ("old", "new")


@pytest.mark.parametrize(("cookies", "kind"), [([], "wrong"), (["basket"], "outdated")])
def test_a_page_of_a_cookie_that_is_outdated_is_wrong_unless_it_is_a_mere_value(rehearsed, found, cookies, kind):
    site = rehearsed(cookies=["basket"], rules=[("/*", ttl(60, cookies=cookies))])
    site.respond = serving(lambda request: LINES + "1 item", vary="Cookie")
    for headers in ({"Cookie": "basket=7"}, {}):
        store(site, "/", headers)
        site.get("/", headers)
    site.respond = serving(lambda request: LINES + "2 items", vary="Cookie")
    site.get("/", {"Cookie": "basket=7"})
    assert found(site, kind)
    number = outcomes(site).get("outdated", 0)
    site.get()
    assert found(site, "outdated", number + 1)


def test_a_run_that_fails_without_the_visitor_is_unclear(rehearsed, found):
    site = rehearsed()
    site.respond = serving(visitor)
    store(site)
    site.respond = lambda request: Response(
        visitor(request).encode(), {"cache-control": "max-age=60"}, 200 if "cookie" in request.headers else 403
    )
    site.get("/", {"Cookie": "ada"})
    assert found(site, "unclear")
    assert examples(site)["unclear"]["visitor"] == "a request without the visitor gets the status 403"


def test_pages_that_lose_cookies_are_compared_for_other_visitors_only(rehearsed, found):
    site = rehearsed(rules=[("/*", without_cookies("history"))])
    site.respond = serving(visitor)
    store(site)
    site.get("/", {"Cookie": "history=1"})
    assert outcomes(site) == {"stored": 1, "hits": 1, "unclear": 1}
    assert examples(site)["unclear"]["visitor"] == "a rule removes its cookies"
    site.get("/new", {"Cookie": "history=1"})
    assert outcomes(site)["not stored: bypass"] == 1


def test_a_stale_page_is_renewed(rehearsed, clock):
    site = rehearsed()
    site.respond = serving(lambda request: LINES, "max-age=1, stale-while-revalidate=600")
    store(site)
    for _ in range(3):
        clock.advance(2)
        site.get()
    assert outcomes(site) == {"stored": 4}


def test_a_post_while_the_cache_is_off_outdates_the_page(rehearsed):
    site = rehearsed(rehearse=None)
    site.respond = serving(lambda request: "old")
    site.get()
    mode = site.cache.pages.mode
    mode.change("off")
    site.respond = serving(lambda request: "new")
    assert site.get(method="POST").detail == "fwd=method; detail=method"
    mode.change("on")
    assert site.get().body == b"new"


def test_reasons_are_counted_with_an_example(rehearsed):
    site = rehearsed()
    site.respond = serving(lambda request: LINES, "private")
    for _ in range(4):
        site.get("/mine")
    assert outcomes(site) == {"not stored: private": 4}
    found = examples(site)["not stored: private"]
    assert (found["url"], found["reason"], found["detail"]) == ("/mine", "private", "private")


def test_headers_of_answers_are_those_without_the_cache(rehearsed):
    site = rehearsed(rules=[("/*", ttl(60))])
    site.respond = serving(lambda request: LINES, "public", etag='"x"', **{"set-cookie": "a=1"})
    for _ in range(2):
        answer = site.get("/", {"If-None-Match": '"x"'})
        assert (answer.status, answer["cache-control"], answer["set-cookie"]) == (200, "public", "a=1")
        assert site.requests[-1].headers["if-none-match"] == '"x"'


COURSES = {
    # The answer to the visitor, those of the reruns, the pauses before these, and the counts: outcomes and corrections.
    "as stored": ("a", [], [], ["equal"]),
    "a number": ("b", ["c", "d"], [SOON, PAUSE], ["noise"]),
    "another page for all": ("b", ["b", "b"], [SOON, PAUSE], ["outdated"]),
    "a list": ("b", ["c", "c", "c", "d"], [SOON, PAUSE, 0, 0], ["noise"]),
    "a page of the visitor": ("b", 7 * ["a"], [SOON, PAUSE, 0, 0, 0, 0, LATER], ["wrong"]),
    "a clock of minutes": ("b", [*6 * ["c"], "d"], [SOON, PAUSE, 0, 0, 0, 0, LATER], ["wrong", "noise, not wrong"]),
    "a failure after a minute": ("b", [*6 * ["a"], "!"], [SOON, PAUSE, 0, 0, 0, 0, LATER], ["wrong"]),
    "a 403 after a minute": ("b", [*6 * ["a"], "403"], [SOON, PAUSE, 0, 0, 0, 0, LATER], ["wrong"]),
    "a failure": ("b", ["a", "!"], [SOON, PAUSE], ["unclear"]),
    "a time of the visitor": ("12:01", 3 * ["12:02"], [SOON, PAUSE, LATER], ["wrong"]),
    "a clock": ("12:01", ["12:02", "12:02", "12:03"], [SOON, PAUSE, LATER], ["noise"]),
    "a time, and a failure after a minute": ("12:01", ["12:02", "12:02", "!"], [SOON, PAUSE, LATER], ["unclear"]),
}


@pytest.mark.parametrize("course", COURSES)
def test_reruns_follow_until_the_outcome_is_certain(course):
    visitor, reruns, pauses, counts = COURSES[course]
    paused, waiting, counted, ended = [], [], [], []

    def answer(text):
        return Answer(403 if text == "403" else 200, b"", b"", text.encode())

    def report(found, former):
        counted.append(found.kind.value + ("" if former is None else f", not {former.kind.value}"))

    comparison = Comparison(
        answer("12:00" if ":" in visitor else "a"),
        is_keyed=False,
        is_new=False,
        rerun=lambda pause, heard, size: (paused.append(pause), waiting.append(heard)),
        report=report,
        end=lambda: ended.append(True),
    )
    comparison.begin(answer(visitor))
    for text in reruns:
        assert not ended
        waiting.pop()("the run failed" if text == "!" else answer(text))
    assert (paused, counted, ended, waiting) == (pauses, counts, [True], [])
    # No clock shows the same after them.
    assert PAUSE > 1
    assert LATER > 60


@pytest.mark.parametrize(("again", "kind"), [("b", "wrong"), ("a", "outdated"), ("no run", "wrong")])
def test_an_answer_that_the_visitor_no_longer_gets_is_outdated_and_not_wrong(again, kind):
    heard, reports = [], []
    answers = {text: Answer(200, b"", b"", text.encode()) for text in "ab"}
    comparison = Comparison(
        answers["b"],
        is_keyed=False,
        is_new=True,
        rerun=lambda pause, hear, size: heard.append((hear, answers["a"])),
        repeat=lambda pause, hear, size: heard.append((hear, answers.get(again, again))),
        report=lambda found, former: reports.append(found.kind.value),
        end=lambda: None,
    )
    comparison.begin(answers["b"])
    while heard and not reports:
        hear, answer = heard.pop()
        hear(answer)
    assert reports == [kind]


@pytest.mark.parametrize(("size", "most"), [(1_000_000, 1000), (1, 8)])
def test_comparisons_are_bounded_by_their_number_and_their_bytes(rehearsed, found, monkeypatch, size, most):
    monkeypatch.setattr(rehearsing, "MOST_COMPARISONS", most)
    site = rehearsed()
    site.respond = serving(lambda request: f"{next(numbers)} {'x' * size}")
    for _ in range(11):
        site.get()
    # Up to four answers of each are kept, and 32 MB of all. The first one is that of the page that is stored.
    assert outcomes(site)["unclear"] == 3
    for number in range(7, 19, 2):
        assert found(site, "noise", number)
        for _ in range(2):
            site.get()
    assert outcomes(site)["unclear"] == 3


def test_after_many_reruns_a_view_is_compared_more_and_more_rarely(rehearsed, monkeypatch):
    monkeypatch.setattr(rehearsing, "UNLIMITED_RERUNS", 4)
    monkeypatch.setattr(rehearsing.random, "random", lambda: 0.5)
    site = rehearsed()
    compared = []

    def respond(request):
        answer = serving(noisy)(request)
        if request.notes is not None:
            request.notes.view = request.path
        compared.append(request.notes is not None)
        return answer

    site.respond = respond
    for path in ("/one", "/other"):
        site.get(path)
        compared.clear()
        for _ in range(20):
            site.get(path)
        # The first rerun of each, and that of the stored page, after which the next would run for a share of 4 / 8.
        assert compared == 7 * [True] + 13 * [False]


class HeldSite(AsgiSite):
    """A site whose reruns end one after the other, as the test allows it."""

    def __init__(self, clock, **options):
        super().__init__(clock, **options)
        self.allowed = asyncio.Semaphore(0)
        self.begun = self.running = self.most_running = 0

    def has_begun(self, number):
        self.clock.advance(0.1)
        return self.begun >= number

    async def application(self, scope, receive, send):
        if scope["client"][0] == NOBODY:
            self.begun, self.running = self.begun + 1, self.running + 1
            self.most_running = max(self.most_running, self.running)
            await self.allowed.acquire()
            self.running -= 1
        await super().application(scope, receive, send)


def test_at_most_four_reruns_run_at_the_same_time(clock, closed):
    site = HeldSite(clock, rehearse=1)
    closed(site.cache.cache)
    site.respond = serving(noisy)
    with running_loop() as site.loop:
        for _ in range(20):
            site.get()
        # Two for each visitor.
        for number in range(1, 41):
            assert until(partial(site.has_begun, min(number + 3, 40)))
            site.loop.call_soon_threadsafe(site.allowed.release)
    assert site.most_running == 4


class SiteWithState(AsgiSite):
    """A site whose server gives each request a copy of the state of its lifespan, to which the application adds."""

    def scope(self, *parts):
        return {**super().scope(*parts), "state": {"shop": "Shop"}}

    async def application(self, scope, receive, send):
        state, headers = scope["state"], dict(scope["headers"])
        name = state.setdefault("name", headers.get(b"cookie", b"you").decode())
        body = f"<h1>{state['shop']}</h1><b nonce={state.setdefault('nonce', next(numbers))}></b><p>{name}</p>"
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"cache-control", b"max-age=60")]},
        )
        await send({"type": "http.response.body", "body": body.encode()})


def test_each_rerun_has_a_state_of_its_own(clock, closed, found):
    site = SiteWithState(clock, rehearse=1)
    closed(site.cache.cache)
    with running_loop() as site.loop:
        for _ in range(2):
            site.get("/nonce")
        assert found(site, "noise")
        assert "wrong" not in outcomes(site)
        site.get("/name")
        site.get("/name", {"Cookie": "ada"})
        assert found(site, "wrong")


def test_only_a_share_is_compared(make_site):
    site = make_site(rehearse=0.5)
    site.respond = serving(lambda request: LINES)
    for _ in range(200):
        site.get()
    found = outcomes(site)
    assert (found["stored"], found["hits"]) == (1, 199)
    assert 50 < found["equal"] < 150


def test_a_switch_changes_what_is_done_with_pages(rehearsed):
    site = rehearsed()
    site.respond = serving(noisy)
    site.get()
    mode = site.cache.pages.mode
    mode.change("on")
    assert site.get().detail.startswith("hit")
    mode.change("off")
    assert site.get().detail == 'fwd=bypass; detail="switched off"'
    mode.change("rehearse")
    assert site.get().detail.startswith("fwd=bypass; detail=")


def test_comparisons_take_bounded_time_and_memory():
    texts = ["".join(f"{number + 100_000 * factor} \n\n" for number in range(20_000)) for factor in (1, 2, 3, 4)]
    answers = [Answer(200, b"", b"", text.encode()) for text in texts]
    assert compare(answers[0], answers[1], answers[2:], is_keyed=False).kind is Kind.NOISE
    gzipped = [(b"content-encoding", b"gzip")]
    bomb = gzip.compress(bytes(1_000_000))
    assert len(answer_of(200, gzipped, bomb, ignored=frozenset(), most=1000).body) == 1000
    assert answer_of(200, gzipped, b"not gzip", ignored=frozenset(), most=1000).body == b"not gzip"


# The results of a site.


@pytest.fixture
def path(tmp_path):
    return tmp_path / "figures"


@pytest.fixture
def workers(rehearsed, found, path):
    """Two workers of a site, with an application whose pages show the visitor."""
    made = [rehearsed(figures_dir=path) for _ in range(2)]
    for site in made:
        site.respond = serving(PERSONAL["a name"])
        store(site, "/a")
        site.get("/a", {"Cookie": "ada"})
        site.get("/a")
        assert found(site, "wrong")
    return made


def results(site):
    (found,) = page_commands.rehearsal([site.cache.cache], None).document
    return found


def test_workers_add_up_also_after_their_end(workers, clock):
    one, other = workers
    one.cache.cache.close()
    clock.advance(INTERVAL)
    found = results(other)
    (view,) = found["views"]
    assert {kind: view[kind] for kind in ("visits", "hits", "compared", "equal", "wrong")} == {
        "visits": 6,
        "hits": 4,
        "compared": 4,
        "equal": 2,
        "wrong": 2,
    }
    assert found["verdict"] == "wait"
    assert found["sentence"].startswith("Wait: 6 visits in ")
    assert view["differences"] == [
        {"kind": "wrong", "url": "/a", "line": 7, "stored": "<p>Hello you</p>", "visitor": "<p>Hello ada</p>"}
    ]
    clock.advance(INTERVAL)
    assert results(other)["visits"] == 6


@pytest.mark.parametrize("may_see", [True, False])
def test_the_dashboard_shows_texts_only_to_those_who_may_see_values(workers, clock, may_see):
    clock.advance(INTERVAL)
    granted = frozenset({Permission.INSPECT if may_see else Permission.OPERATE})
    request = Request("GET", "figures.json", dict, {}.get, "localhost", "/", granted, lambda: "ann")
    response = respond(request, Dashboard("a site", lambda: [workers[0].cache.cache], lambda name: []))
    (card,) = json.loads(response.body)["caches"]
    (found,) = card["rehearsal"]["findings"]
    assert found["sentence"] == "wrong: the view, /a, line 7"
    assert found["details"] == (["stored:  <p>Hello you</p>", "visitor: <p>Hello ada</p>"] if may_see else [])
    assert ("Hello" in response.body.decode()) == may_see


def test_a_new_rehearsal_forgets_the_last_one(workers, clock):
    clock.advance(INTERVAL)
    page_commands.change_mode([workers[0].cache.cache], None, "rehearse")
    workers[0].get("/a")
    clock.advance(INTERVAL)
    assert results(workers[0])["visits"] == 1


def test_a_correction_of_an_earlier_rehearsal_is_not_counted(rehearsed, found, path, clock):
    times = [*2 * ["noon"], "one", *6 * ["two"]]
    site = rehearsed(figures_dir=path)
    site.respond = serving(lambda request: f"<p>{times.pop(0) if times else 'three'}</p>", "max-age=600")
    store(site)
    site.get()
    assert found(site, "wrong")
    clock.advance(INTERVAL)
    assert results(site)["wrong"] == 1
    page_commands.change_mode([site.cache.cache], None, "rehearse")
    clock.advance(61)
    assert found(site, "noise")
    clock.advance(INTERVAL)
    assert (results(site)["wrong"], results(site)["noise"]) == (0, 1)


def test_a_new_worker_begins_with_the_mode_of_the_site(workers, rehearsed, path, clock):
    clock.advance(INTERVAL)
    page_commands.change_mode([workers[0].cache.cache], None, "off")
    new = rehearsed(rehearse=None, figures_dir=path)
    new.respond = serving(lambda request: LINES)
    for _ in range(3):
        assert new.get().detail == 'fwd=bypass; detail="switched off"'


def test_a_mode_reaches_all_workers(workers, clock):
    clock.advance(INTERVAL)
    for mode, detail in (("on", "hit"), ("off", 'fwd=bypass; detail="switched off"'), ("rehearse", "fwd=bypass")):
        report = page_commands.change_mode([workers[0].cache.cache], None, mode)
        assert report.document == [{"cache": "pages", "mode": mode}]
        clock.advance(INTERVAL)
        assert all(site.get("/a").detail.startswith(detail) for site in workers)


def test_without_a_rehearsal_the_command_says_how_to_begin(make_site, path, clock):
    site = make_site(figures_dir=path)
    site.get()
    clock.advance(INTERVAL)
    with pytest.raises(CommandFailed, match="rehearse="):
        results(site)


# Strangers who want to fill the memory, or to hide the outcomes of other views.


def without_lifetime(vary):
    def respond(request):
        if request.notes is not None:
            request.notes.view = request.path.split("/")[1]
        cookie = {"set-cookie": f"seen{request.path.replace('/', '-')}=1"} if request.path.startswith("/many") else {}
        return Response(b"<p>x-3000</p>", {"vary": vary, **cookie} if vary else cookie)

    return respond


FLOODS = {
    "cookies on which no page depends": (
        "Cookie",
        lambda number: (f"/shop/{number}", {"Cookie": f"c{number}{'x' * 3000}=1"}),
    ),
    "cookies that a page shows": ("", lambda number: ("/shop", {"Cookie": f"c{number}=<p>x-3000</p>"})),
    "values of headers": ("User-Agent", lambda number: (f"/shop/{number}", {"User-Agent": f"{number}{'x' * 3000}"})),
    "pages that set a cookie each": ("", lambda number: (f"/many/{number}", {})),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_no_stranger_fills_the_memory_or_hides_other_views(make_site, flood):
    vary, request_of = FLOODS[flood]
    site = make_site(rehearse=1)
    site.respond = without_lifetime(vary)
    for number in range(rehearsing.MOST_ROWS_OF_A_VIEW + 20):
        site.get(*request_of(number))
    site.get("/last")
    rehearsal = site.cache.pages.rehearsal
    kinds = [kind for view, kind in rehearsal.counts() if view == flood_view(flood)]
    assert len(kinds) <= (rehearsing.MOST_ROWS_OF_A_VIEW if "each" in flood else 4)
    assert all(len(key) < 100 for key in rehearsal._would_be_stored._facts)
    assert all(len(names) <= rehearsing.MOST_LOST for names in rehearsal._lost.values())
    assert ("last", "not stored: no lifetime") in rehearsal.counts()


def flood_view(flood):
    return "many" if "each" in flood else "shop"


@pytest.mark.parametrize(
    ("target", "pattern"),
    [("/caf%C3%A9/%22", '"/café/\\""'), (f"/{'%C3%A9' * 60}", f'"/{"é" * 33}*"'), ("/a?b", '"/a"')],
)
def test_the_rule_for_a_wrong_page_matches_its_path(rehearsed, found, path, clock, target, pattern):
    site = rehearsed(figures_dir=path)
    personal, right = serving(PERSONAL["a name"]), without_lifetime("")
    site.respond = lambda request: (right if request.path == "/right" else personal)(request)
    for _ in range(120):
        site.get("/right")
    store(site, target)
    site.get(target, {"Cookie": "ada"})
    assert found(site, "wrong")
    clock.advance(INTERVAL)
    assert f"({pattern}, bypass())" in results(site)["block"]
