"""A child of a fork keeps the pages of its parent, and begins its own figures. It waits for no run of the parent."""

import threading

import pytest

from tests.pages.site import Response, WsgiSite, maker
from tests.runtime.forks import fork
from tests.waiting import PATIENCE, join, start, until


# The fork happens while the thread of a request runs, as in a server that starts another worker.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_answers_from_inherited_pages_and_makes_a_page_that_its_parent_is_making(clock, closed):
    wsgi, may_answer = maker(WsgiSite, clock, closed)(wait=100 * PATIENCE), threading.Event()

    def respond(request):
        if request.path == "/slow":
            assert may_answer.wait(PATIENCE)
        return Response()

    wsgi.respond = respond
    wsgi.get("/stored")
    slow = start(wsgi.get, "/slow")
    assert until(lambda: wsgi.runs == 2)

    def child():
        may_answer.set()
        assert wsgi.get("/stored").detail.startswith("hit")
        assert wsgi.get("/slow").body == b"page"
        assert wsgi.runs == 3
        stats = wsgi.stats()
        assert (stats.fresh, stats.stored) == (1, 1)

    assert fork(child)
    may_answer.set()
    join(slow)
    assert (wsgi.stats().stored, wsgi.stats().fresh) == (2, 0)
