"""Both sites on real servers, each a process of its own: threads, forks, gevent, ASGI, and one without threads."""

import pytest

from tests.waiting import until

CALLERS = 24
OPTIONS = {"jitter": 0}
GREEN = ["gevent", "preload", "preload_used", "gevent_late", "eventlet_late"]
ON_FLASK = [("flask", "waitress"), ("flask", "preload")]
ALL = [*(("django", server) for server in ("waitress", "uvicorn", *GREEN, "fork", "uwsgi", "refused")), *ON_FLASK]
THREADED = [each for each in ALL if each[1] != "refused"]
AT_ONCE = [each for each in THREADED if each[1] not in ("fork", "uwsgi")]
ASYNC = [("django", "uvicorn"), ("django", "waitress")]


@pytest.fixture(scope="module", autouse=True)
def _no_traceback(fleet):
    yield
    assert "Traceback" not in fleet.logs()


@pytest.fixture
def start(fleet):
    def start_server(framework, server, **how):
        return fleet(framework, server, **OPTIONS, **how)

    return start_server


@pytest.fixture
def site(start, request):
    started = start(*request.param)
    return started[0] if isinstance(started, list) else started


def on(servers):
    return pytest.mark.parametrize("site", servers, indirect=True, ids=map(" ".join, servers))


@on(ALL)
def test_what_one_request_sets_the_next_gets(site):
    site("set/kept?value=a")
    assert site("get/kept") == {"value": ["a"]}
    site("set/kept?value=b")
    assert site("get/kept") == {"value": ["b"]}
    assert site("get/never-set") == {"value": None}


@on(ALL)
def test_a_page_is_computed_once_and_an_expired_entry_is_not_returned(site):
    assert site("page/once")["run"] == site("page/once")["run"] == 1
    site("set/short?value=a&timeout=0.05")
    assert until(lambda: site("get/short") == {"value": None})


@on(THREADED)
def test_expired_entries_leave_memory_while_no_request_uses_the_cache(site):
    before = site("size")["size"]
    # Some of the earlier entries may expire.
    assert 200 <= site("set-many/200?timeout=1")["size"] <= before + 200
    assert until(lambda: site("size")["size"] <= before)


@on([("django", "refused")])
def test_where_no_thread_can_run_later_writes_remove_what_expired(site):
    before = site("size")["size"]
    # Some of the earlier entries may expire.
    filled = site("set-many/200?timeout=1")["size"]
    assert 200 <= filled <= before + 200
    assert until(lambda: site("get/many0") == {"value": None})
    # No thread removed them, nor did the read.
    assert site("size")["size"] == filled

    def size_after_a_write():
        site("set/written-later?timeout=3600")
        return site("size")["size"]

    assert until(lambda: size_after_a_write() <= before + 1)


@on(ALL)
def test_counting_in_many_requests_at_once_loses_none(site):
    answers = site.together(*["count/sum"] * 100)
    assert sorted(answer["value"] for _, answer in answers) == list(range(1, 101))


@on(AT_ONCE)
def test_however_many_requests_miss_together_the_loader_runs_once(site):
    answers = site.together(*[f"together/{CALLERS}"] * CALLERS)
    assert answers == [(200, {"value": ["value"], "computed": 1})] * CALLERS


@on(AT_ONCE)
def test_a_loader_with_a_timeout_and_a_refresh_in_the_background_hold_up_no_other_request(site):
    assert site("timed/first") == {"value": ["first"]}
    assert until(lambda: site("refreshed") == {"value": ["new"]})
    answers = site.together(*[f"timed/{number}" for number in range(CALLERS)], *["refreshed"] * CALLERS)
    assert answers[:CALLERS] == [(200, {"value": [str(number)]}) for number in range(CALLERS)]
    assert until(lambda: site("idle") == {"idle": True})
    assert site("timed/last") == {"value": ["last"]}


def test_children_forked_after_first_use_have_the_entries_and_then_each_its_own(start):
    one, other = start("django", "fork", again="afresh")
    assert one("get/inherited") == other("get/inherited") == {"value": ["from the parent"]}
    pids = {one("set/inherited?value=of-one")["pid"], other("set/own?value=of-other")["pid"]}
    assert len(pids) == 2
    assert one("get/inherited") == {"value": ["of-one"]}
    assert other("get/inherited") == {"value": ["from the parent"]}
    assert one("get/own") == {"value": None}


def test_every_child_of_a_fork_removes_what_expires(start):
    for child in start("django", "fork"):
        before = child("size")["size"]
        child("set-many/150?timeout=0.3")
        assert until(lambda child=child, before=before: child("size")["size"] <= before)
