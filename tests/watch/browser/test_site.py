"""The dashboard in Debian's Chromium, in front of a real server with two workers."""

import pytest

from tests.servers.process import running, two_workers_of
from tests.waiting import until
from tests.watch.browser.page import SOON

CLEAR = '[data-action="clear"]'


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command, figures, log = two_workers_of("tests.watch.browser.watched_site"), str(folder / "figures"), folder / "log"
    with running(command, log, is_up=lambda each: each.is_up(""), SITE_FIGURES=figures) as server:
        yield server
    assert "Traceback" not in log.read_text(), log.read_text()


def entries(site, path=""):
    """Return the number of entries of each worker. Any free worker answers, so repeat the request until both have."""
    found = {}

    def both_answered():
        state = site(path)
        found[state["pid"]] = state["entries"]
        return len(found) == 2

    assert until(both_answered, SOON, note=lambda: found)
    return found


def shows(page, workers):
    """Return whether the page shows these workers."""
    return {int(row.get_attribute("data-worker")) for row in page.all("[data-worker]")} == workers.keys()


def test_the_figures_of_all_workers_move_while_the_page_is_open(page, site):
    workers = entries(site, "use/key/1/1")
    page.open()
    assert until(lambda: shows(page, workers), SOON)
    hits = page.number("hits")
    entries(site, "use/key/100/1")
    assert until(lambda: page.number("hits") > hits, SOON)
    assert page.number("requests") == page.number("hits") + page.number("misses")


def test_a_clear_empties_all_workers_once_it_is_confirmed_and_the_events_name_the_operator(page, site):
    workers = entries(site, "use/key/1/1")
    page.open()
    assert until(lambda: shows(page, workers), SOON)
    said = page.press(CLEAR, sure=False)
    assert all(str(pid) in said for pid in workers)
    assert all(entries(site).values())
    page.press(CLEAR)
    assert until(lambda: page.text("#message").startswith("Cleared pages. Takes effect in worker "), SOON)
    assert until(lambda: not any(entries(site).values()), SOON)
    site("fail")
    assert until(lambda: page.look_again() or "division by zero" in page.text("#events"), SOON)
    assert "by the dashboard, from 127.0.0.1" in page.text("#events")
