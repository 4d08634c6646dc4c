"""No visitor controls what others see: attacks of a hostile visitor on real servers.

Every answer to an honest visitor is compared with the answer of the same site without its cache.
"""

import re
from contextlib import ExitStack
from functools import cache
from itertools import cycle, product

import pytest

from tests.servers.hostile import ATTACKS, Siege
from tests.servers.process import Fleet
from tests.servers.test_visited import SERVERS as VISITED
from tests.servers.test_visited import SITE

SERVERS = {
    name: [part.replace(SITE, "tests.servers.hostile_site") for part in VISITED[name]]
    for name in ("gunicorn", "uvicorn", "granian")
}
OF_ASGI = ["uvicorn"]
OF_WSGI = [name for name in SERVERS if name not in OF_ASGI]
FEW, MANY = 800, 2500
"""Requests to each server in ``make check``, and in ``make deep``. In ``make check``, one server gets a tenth of those,
too."""
OF_A_SESSION = re.compile("/(user|session|theme)/")
"""Pages that depend on cookies. A visitor without any cookies shares them with an attacker who hides one."""


@pytest.fixture(scope="module")
def sieges(tmp_path_factory):
    """Start a server, or get the one that runs."""
    with ExitStack() as stack:
        fleet = Fleet(stack, tmp_path_factory.mktemp("servers"))

        @cache
        def start(name):
            folder = str(tmp_path_factory.mktemp("site"))
            server = fleet(name, SERVERS[name], VISITED_SITE=folder, VISITED_DEBUG="0")
            return Siege(server, flask=name not in OF_ASGI)

        yield start


@pytest.fixture(params=SERVERS)
def server(request):
    return request.param


@pytest.fixture
def siege(server, sieges):
    siege = sieges(server)
    siege.begin()
    return siege


KINDS = {attack.split()[0]: attack for attack in ATTACKS}
# The servers of WSGI, which have the same driver of the cache, share the attacks. That of ASGI gets one of each kind.
CASES = [*zip(cycle(OF_WSGI), ATTACKS), *product(OF_ASGI, KINDS.values())]


@pytest.mark.deep
@pytest.mark.parametrize(("server", "attack"), CASES)
def test_an_attack_changes_no_page_of_another_visitor(siege, attack):
    siege.probe(attack, siege.paths)
    siege.probe(attack, [path for path in siege.paths if OF_A_SESSION.search(path)], ["a stranger"])
    assert not siege.wrong
    assert siege.figures["honest"] == siege.figures["hostile"] > len(siege.paths)


def test_a_page_that_shows_a_secret_shows_it_to_nobody_else(siege):
    siege.probe("token", siege.leaky, [*siege.visitors] * 2)
    assert not siege.wrong


@pytest.mark.parametrize("requests", [FEW, pytest.param(MANY, marks=pytest.mark.deep)])
def test_no_answer_to_honest_visitors_differs_from_the_site_without_a_cache_during_a_mixed_attack(
    siege, requests, at_length
):
    requests = requests if requests == FEW else at_length(requests)
    siege.run(requests)
    assert not siege.wrong
    assert siege.figures["honest"] == siege.figures["hostile"] == requests
    assert siege.figures["honest hits"] > requests / 4
    assert siege.figures["reached"] > requests / 4
