"""Django Debug Toolbar, which wraps the methods of every cache: its panel shows our calls, and all goes on as without.

Each test is a process of its own, since the changes of the toolbar to Django are never undone.
"""

import json
from pathlib import Path

import pytest

from tests.scripts import run_python

pytestmark = pytest.mark.deep

ROOT = Path(__file__).parents[2]
SITE = "tests.django_backend.toolbar_site"


def visits(path, times, *, toolbar):
    """Return the answers of ``times`` requests for ``path`` in one process, with their data in the cache panel."""
    done = run_python(
        "-W", "error::RuntimeWarning", "-m", SITE, path, str(times), env={"WITH_TOOLBAR": "1" if toolbar else ""}
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


CALLS = [
    ("get", 0, 1),
    ("set", 0, 0),
    ("get", 1, 0),
    ("get_many", 1, 2),
    ("get_or_set", 1, 0),
    ("get", 1, 0),
    ("incr", 0, 0),
    ("has_key", 0, 0),
    ("delete", 0, 0),
    ("get", 0, 1),
]
"""The calls of the page, with the hits and misses of each. To the toolbar, ``get_or_set`` is a hit if it returned
something."""


def visits_beside_those_without(path):
    """The visits with the toolbar, in which nothing is otherwise than without."""
    without = visits(path, 3, toolbar=False)
    found = visits(path, 3, toolbar=True)
    for key in ("answer", "stats"):
        assert [each[key] for each in found] == [each[key] for each in without]
    return found


@pytest.mark.parametrize("alias", ["default", "tiered"])
def test_the_panel_shows_each_call_with_its_hits_and_misses(alias):
    for visit in visits_beside_those_without(f"/calls/{alias}/"):
        panel = visit["panel"]
        assert [call["name"] for call in panel["calls"]] == [name for name, _, _ in CALLS]
        assert panel["hits"] == sum(hits for _, hits, _ in CALLS)
        assert panel["misses"] == sum(misses for _, _, misses in CALLS)
        assert {call["backend"].split()[0] for call in panel["calls"]} == {alias}
        assert panel["shown"]


@pytest.mark.parametrize("alias", ["default", "tiered"])
def test_cache_page_is_a_miss_and_then_two_hits(alias):
    cold, *warm = visits_beside_those_without(f"/page/{alias}/")
    # Without the list of headers, no look-up for the page is made.
    assert ([call["name"] for call in cold["panel"]["calls"]], cold["panel"]["hits"]) == (["get", "set", "set"], 0)
    assert cold["panel"]["misses"] == 1
    for visit in warm:
        assert ([call["name"] for call in visit["panel"]["calls"]], visit["panel"]["hits"]) == (["get", "get"], 2)
        assert visit["answer"] == cold["answer"]


def test_the_arguments_that_only_we_take_reach_get_or_set():
    fresh, stale = visits("/grace/default/", 2, toolbar=True)
    assert (fresh["answer"], stale["answer"]) == ("1", "1")
    assert stale["stats"]["stale_hits"] == 1
    [call] = stale["panel"]["calls"]
    assert call["kwargs"] == "{'grace': 60, 'refresh_ahead': 0.9}"
