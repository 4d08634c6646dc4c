"""A rehearsal serves nothing, and counts the pages that would have been wrong."""

import pytest

from tests.pages.rehearsal.conftest import LINES, example, lines, noisy, outcomes, personal, serving
from tests.pages.site import Response
from tests.waiting import until
from wheelcache.pages import rehearsing, ttl, without_cookies
from wheelcache.pages.asgi import AsgiRequest

# Nothing is served.

LIFETIMES = [*("max-age=600", "max-age=1, stale-while-revalidate=600", "max-age=1, stale-if-error=600", "no-cache")]
HEADERS = [
    *({"Cache-Control": "only-if-cached"}, {"Cache-Control": "no-store"}, {"Authorization": "Basic eDp5"}),
    *({"Range": "bytes=1-2"}, {"If-None-Match": '"old"'}, {"If-None-Match": "*"}, {"Cookie": "theme=dark"}),
    {"If-Modified-Since": "Tue, 14 Nov 2023 22:13:20 GMT"},
]
# HEAD is the last one: no other request replaces what it may have stored.
REQUESTS = [{}, {"method": "POST"}, *({"headers": headers} for headers in HEADERS), {"method": "HEAD"}]


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
    found = []
    for how in REQUESTS:
        site.clock.advance(pause)
        try:
            answer = site.get(**how)
        except LookupError as error:
            found.append(str(error))
        else:
            found.append((answer.status, {**answer.headers, "cache-status": None}, answer.body))
    return found


@pytest.mark.pairs
@pytest.mark.parametrize("status", [200, 500, None])
@pytest.mark.parametrize("lifetime", LIFETIMES)
def test_all_answers_are_those_of_the_application(make_site, lifetime, status):
    site = make_site(rehearse=1)
    site.respond = answering(lifetime, "old", 200)
    site.get()
    assert outcomes(site)["stored"] == 1
    cached, site.respond = site.app, answering(lifetime, "new", status)
    # Later requests also meet the marks that earlier ones have left.
    for pause in (2, 0, 2):
        found, site.app = answers(site, pause), site.application
        expected, site.app = answers(site, 0), cached
        assert found == expected
    site.cache.pages.mode.change("on")
    site.respond = answering(lifetime, "old", 200)
    assert site.get().body in (b"old", b"new")


def test_a_switch_changes_what_is_done_with_pages(rehearsed):
    site = rehearsed()
    site.respond = serving(noisy)
    assert len({site.get().body for _ in range(3)}) == 3
    assert site.get().detail == 'fwd=bypass; detail="rehearsal: a hit otherwise"'
    assert site.stats().fresh == 0
    mode = site.cache.pages.mode
    mode.change("on")
    assert site.get().detail.startswith("hit")
    mode.change("off")
    assert site.get().detail == 'fwd=bypass; detail="switched off"'
    # A POST outdates the page also while the cache is off.
    assert site.get(method="POST").detail == "fwd=method; detail=method"
    mode.change("on")
    assert site.get().detail.startswith("fwd")


# The outcomes.


def test_a_page_that_shows_a_visitor_is_wrong(rehearsed, found, store):
    site = rehearsed()
    site.respond = serving(personal)
    store(site, "/a?b")
    site.get("/a?b", {"Cookie": "ada"})
    assert found(site, "wrong")
    assert outcomes(site) == {"stored": 1, "hits": 1, "wrong": 1}
    texts = {"stored": "<p>Hello you</p>", "visitor": "<p>Hello ada</p>"}
    assert example(site, "wrong") == {"url": "/a?b", "line": 7, **texts}
    # Also the visitor for whom it was made.
    site.get("/new", {"Cookie": "ada"})
    assert found(site, "wrong", 2)


@pytest.mark.parametrize(("cookies", "kind"), [([], "wrong"), (["basket"], "outdated")])
def test_a_page_of_a_cookie_that_is_outdated_is_wrong_unless_it_is_a_mere_value(rehearsed, found, store, cookies, kind):
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


def test_pages_that_lose_cookies_are_compared_for_other_visitors_only(rehearsed, store):
    site = rehearsed(rules=[("/*", without_cookies("history"))])
    site.respond = serving(personal, **{"set-cookie": "history=1"})
    store(site)
    site.get("/", {"Cookie": "history=1"})
    site.get()
    assert outcomes(site) == {"stored": 1, "hits": 2, "unclear": 1, "equal": 1}
    assert example(site, "unclear")["visitor"] == "a rule removes its cookies"


@pytest.mark.parametrize(
    "how", [{"headers": {"If-None-Match": '"a"'}}, {"headers": {"Authorization": "Basic eDp5"}}, {"method": "HEAD"}]
)
def test_an_answer_that_is_not_that_to_anybody_is_counted_and_not_compared(rehearsed, store, clock, how):
    site = rehearsed()
    site.respond = serving(lambda request: lines(request) if request.method == "GET" else "", "public, max-age=60")
    store(site)
    rehearsal = site.cache.pages.rehearsal
    assert until(lambda: (clock.advance(0.1), not rehearsal._comparisons)[1])
    site.get(**how)
    assert outcomes(site) == {"stored": 1, "hits": 1}
    assert not rehearsal._comparisons


@pytest.mark.parametrize(
    ("control", "seconds", "gains"), [("public", 59, 1), ("public", 60, 0), ("private, max-age=60", 59, 0)]
)
def test_a_second_visit_within_a_minute_would_have_been_a_hit(rehearsed, clock, control, seconds, gains):
    site = rehearsed()
    site.respond = serving(lines, control)
    site.get("/page")
    clock.advance(seconds)
    site.get("/page")
    site.get("/other")
    counts = site.cache.pages.rehearsal.counts().items()
    found = {kind.partition(":")[0]: each.number for (_, kind), each in counts if kind.endswith("]")}
    assert (found["needs"], found.get("gains", 0)) == (3, gains)


def test_a_refuted_rule_is_proved_after_all_if_the_difference_was_a_clock_of_minutes(rehearsed, clock):
    site = rehearsed()
    # The visit, six reruns, the visit again, and the rerun after a minute.
    times = ["noon", *6 * ["two"], "noon", "three"]
    site.respond = serving(lambda request: f"<p>{times.pop(0)}</p>", "public")

    def number_of(kind):
        clock.advance(0.1)
        return sum(each.number for (_, name), each in site.cache.pages.rehearsal.counts().items() if kind in name)

    site.get("/page")
    assert until(lambda: number_of("refuted") == 1)
    clock.advance(61)
    assert until(lambda: number_of("proved") == 1)
    assert number_of("refuted") == 0


# Bounds.


def test_only_a_share_is_compared(make_site):
    site = make_site(rehearse=0.5)
    site.respond = serving(lines)
    for _ in range(200):
        site.get()
    found = outcomes(site)
    assert (found["stored"], found["hits"]) == (1, 199)
    assert 50 < found["equal"] < 150


@pytest.mark.parametrize(("size", "most"), [(1_000_000, 1000), (1, 8)])
def test_comparisons_are_bounded_by_their_number_and_their_bytes(rehearsed, found, monkeypatch, size, most):
    monkeypatch.setattr(rehearsing, "MOST_COMPARISONS", most)
    site = rehearsed()
    site.respond = serving(lambda request: f"{noisy(request)} {'x' * size}")
    for _ in range(11):
        site.get()
    # Up to four answers of each are kept, and 32 MB of all. The first one is that of the page that is stored.
    assert outcomes(site)["unclear"] == 3
    for number in (7, 9, 11):
        assert found(site, "noise", number)
        for _ in range(2):
            site.get()
    assert outcomes(site)["unclear"] == 3


@pytest.mark.parametrize("make_site", ["wsgi"], indirect=True)
def test_only_a_complete_response_that_is_not_too_long_is_compared(rehearsed):
    site = rehearsed(max_body=100)
    site.respond = serving(lines, "public")
    answer = site.app(site.environ(*site.parts("/left")), lambda *start: print)
    next(iter(answer))
    answer.close()
    site.respond = serving(lambda request: "x" * 101, "public")
    site.get("/long")
    assert site.cache.pages.rehearsal._comparisons == 0
    site.respond = serving(lines, "public")
    site.get("/complete")
    assert site.cache.pages.rehearsal._comparisons == 1


def test_an_answer_that_became_too_long_is_not_compared(rehearsed, found, store):
    site = rehearsed(max_body=1000)
    site.respond = serving(lines)
    store(site)
    site.respond = serving(lambda request: "x" * 1001)
    site.get()
    assert found(site, "unclear")
    assert example(site, "unclear")["visitor"] == "longer than max_body"


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


def test_at_most_four_reruns_run_at_the_same_time(site):
    rehearsal, begun = site.cache.pages.rehearsal, []
    for number in range(6):
        rehearsal.start(begun.append, number)
    # The others begin in their order, as soon as one ends. After the last one, four may run again.
    for most in (4, 5, 6, 6, 6, 6):
        assert begun == [*range(most)]
        rehearsal.rerun_ended()
    for number in range(6, 11):
        rehearsal.start(begun.append, number)
    assert begun == [*range(10)]


def test_each_rerun_has_a_state_of_its_own(asgi):
    """The application adds to the copy that the server gives each request of the state of its lifespan."""
    scope = {**asgi.scope("GET", "/", "", []), "state": {"shop": "Shop"}}
    request = AsgiRequest("key", scope, {}, is_plain=True, has_session=False)
    one, other = (request.without_client(frozenset()).scope["state"] for _ in range(2))
    one["name"] = "ada"
    assert other == scope["state"] == {"shop": "Shop"}


# Strangers who want to fill the memory, or to hide the outcomes of other views.


def without_lifetime(vary):
    def respond(request):
        if request.notes is not None:
            request.notes.view = request.path.split("/")[1]
        cookie = {"set-cookie": f"seen{request.path.replace('/', '-')}=1"} if request.path.startswith("/many") else {}
        return Response(b"<p>x-3000</p>", {"vary": vary, **cookie} if vary else cookie)

    return respond


LONG = "x" * 3000
FLOODS = {
    "cookies on which no page depends": ("Cookie", lambda number: (f"/s/{number}", {"Cookie": f"c{number}{LONG}=1"})),
    "cookies that a page shows": ("", lambda number: ("/s", {"Cookie": f"c{number}=<p>x-3000</p>"})),
    "values of headers": ("User-Agent", lambda number: (f"/s/{number}", {"User-Agent": f"{number}{LONG}"})),
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
    kinds = [kind for view, kind in rehearsal.counts() if view in ("many", "s")]
    assert len(kinds) <= (rehearsing.MOST_ROWS_OF_A_VIEW if "each" in flood else 4)
    assert all(len(key) < 100 for key in rehearsal._would_be_stored._facts)
    assert all(len(names) <= rehearsing.MOST_LOST for names in rehearsal._lost.values())
    assert ("last", "not stored: no lifetime") in rehearsal.counts()


def test_the_outcomes_of_all_views_are_bounded(make_site, monkeypatch):
    monkeypatch.setattr(rehearsing, "MOST_ROWS", 5)
    site = make_site(rehearse=1)
    site.respond = without_lifetime("")
    for number in range(9):
        site.get(f"/{number}")
    assert len(site.cache.pages.rehearsal.counts()) == 5
