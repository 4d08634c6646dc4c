"""No visitor controls what others see: attacks of a hostile visitor on real servers."""

import re
from itertools import cycle, product

import pytest

from tests.pages.servers.hostile import ATTACKS, Siege

OF_WSGI = ["gunicorn", "granian"]
FEW, MANY = 800, 2500
"""Requests to each server in ``make check``, and in ``make deep``. In ``make check``, one server gets a tenth of those,
too."""
OF_A_SESSION = re.compile("/(user|session|theme)/")
"""Pages that depend on cookies. A visitor without any cookies shares them with an attacker who hides one."""


@pytest.fixture(params=["uvicorn", *OF_WSGI])
def server(request):
    return request.param


@pytest.fixture
def siege(server, on_server):
    siege = on_server(server, Siege)
    siege.begin()
    return siege


KINDS = {re.split("[: ]", attack)[0]: attack for attack in ATTACKS}
# The servers of WSGI, which have the same driver of the cache, share the attacks. That of ASGI gets one of each kind.
CASES = [*zip(cycle(OF_WSGI), ATTACKS), *product(["uvicorn"], KINDS.values())]


@pytest.mark.deep
@pytest.mark.parametrize(("server", "attack"), CASES, ids=lambda value: repr(value)[:50])
def test_an_attack_changes_no_page_of_another_visitor(siege, attack):
    siege.probe(attack, siege.visits.paths)
    siege.probe(attack, [path for path in siege.visits.paths if OF_A_SESSION.search(path)], ["a stranger"])
    assert not siege.visits.wrong
    assert siege.figures["honest"] == siege.figures["hostile"] > len(siege.visits.paths)


def test_a_page_that_shows_a_secret_shows_it_to_nobody_else(siege):
    siege.probe("Cookie: {token}", siege.visits.leaky, [*siege.visitors] * 2)
    assert not siege.visits.wrong


@pytest.mark.parametrize("requests", [FEW, pytest.param(MANY, marks=pytest.mark.deep)])
def test_no_answer_to_honest_visitors_differs_from_the_site_without_a_cache_during_a_mixed_attack(
    siege, requests, at_length
):
    requests = requests if requests == FEW else at_length(requests)
    siege.run(requests)
    assert not siege.visits.wrong
    assert siege.figures["honest"] == siege.figures["hostile"] == requests
    assert siege.figures["honest hits"] > requests / 4
    assert siege.figures["reached"] > requests / 4
