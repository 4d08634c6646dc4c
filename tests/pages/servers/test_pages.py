"""A Django project behind an HTTP cache, on real servers: no visitor controls what others see."""

import pytest

from tests.pages.servers.conftest import SERVERS
from tests.pages.servers.visitors import Siege
from tests.scripts import ROOT

REQUESTS = 800


@pytest.fixture(scope="module", autouse=True)
def _no_tracebacks(on_server):
    yield
    # Tracebacks of Django may name the folder of this checkout.
    lines = on_server.logs().replace(str(ROOT), "").splitlines()
    named = [number for number, line in enumerate(lines) if "wheelcache" in line]
    assert not named, "\n".join(lines[max(0, named[0] - 20) : named[-1] + 20])


@pytest.mark.parametrize("name", SERVERS)
def test_no_answer_to_honest_visitors_differs_from_the_site_without_a_cache_during_a_mixed_attack(on_server, name):
    siege = Siege(on_server(name))
    siege.run(REQUESTS)
    assert not siege.wrong
    assert siege.figures["honest"] == siege.figures["hostile"] == REQUESTS
    assert siege.figures["honest hits"] > REQUESTS / 4
    assert siege.figures["reached"] > REQUESTS / 4
