"""Django Debug Toolbar, which wraps the methods of every cache: its panel shows our calls, and all goes on as without.

The site is a process of its own, since the changes of the toolbar to Django are never undone.
"""

import json

import pytest

from tests.scripts import run_python

CALLS = [
    *(("get", 0, 1), ("set", 0, 0), ("get", 1, 0), ("get_many", 1, 2), ("get_or_set", 1, 0), ("get", 1, 0)),
    *(("incr", 0, 0), ("has_key", 0, 0), ("delete", 0, 0), ("get", 0, 1)),
]
"""The calls of the page, with the hits and misses of each. To the toolbar, ``get_or_set`` is a hit if it returned
something."""

ANSWER = ["none", {"a": [1]}, {"first": {"a": [1]}}, 7, 7, 8, True, True, None]


@pytest.mark.deep
def test_the_panel_shows_each_call_with_its_hits_and_misses_and_calls_have_their_results():
    done = run_python("-W", "error::RuntimeWarning", "-m", "tests.django_backend.toolbar_site")
    assert done.returncode == 0, done.stderr
    for alias, visit in json.loads(done.stdout).items():
        assert visit["answer"] == ANSWER
        calls = visit["calls"]
        assert [call["name"] for call in calls] == [name for name, _, _ in CALLS]
        assert (visit["hits"], visit["misses"]) == (sum(each[1] for each in CALLS), sum(each[2] for each in CALLS))
        assert {call["backend"].split()[0] for call in calls} == {alias}
        # The arguments that only we take reach get_or_set.
        assert calls[4]["kwargs"] == "{'tags': ()}"
        assert visit["is_shown"]
