"""Requests that miss a page, a fragment or the value of a function together: one computes it."""

import pytest

from tests.caches import is_leased
from tests.fill_waits.on_both.sites import KINDS, TTL, DjangoSite, FlaskSite, OurFlaskSite
from tests.flask_backend.conftest import BEFORE_2_5
from tests.waiting import PATIENCE, THREADS, until_waiting

LONG = 1000

SITES = {"django": DjangoSite, "flask": FlaskSite, **({} if BEFORE_2_5 else {"our flask": OurFlaskSite})}
VALUES = [pytest.param(SITES[name], kind, id=f"{name}-{kind}") for name in SITES for kind in SITES[name].kinds]

of_all_values = pytest.mark.parametrize(("site_class", "kind"), VALUES)
of_all_sites = pytest.mark.parametrize("site_class", SITES.values(), ids=SITES)
of_all_backends = pytest.mark.parametrize("backend", [pytest.param(name, marks=marks) for name, marks in KINDS.items()])


@of_all_backends
@of_all_sites
def test_by_default_callers_wait_for_pages_and_fragments_and_for_no_other_key(site_class, backend, in_thread):
    with site_class().running(backend) as site:
        for key in (*site.waited_for, "maintenance"):
            assert site.backend.get(key) is None
            assert is_leased(site.engine, site.key(key)) is (key in site.waited_for)
        waiter = in_thread(site.backend.get, site.waited_for[0])
        until_waiting()
        site.backend.set(site.waited_for[0], "value")
        assert waiter.result(PATIENCE) == "value"


@of_all_values
def test_a_missing_or_expired_value_is_computed_once_for_all_visitors(clock, together, site_class, kind):
    runs = []

    def compute():
        runs.append(kind)
        if len(runs) == 1:
            until_waiting(THREADS - 1)
        return f"value {len(runs)}"

    with site_class().running(fill_wait=LONG) as site:
        site.compute = compute
        for _ in range(2):
            runs.clear()
            assert len({*together(lambda number: site.ask(kind))}) == len(runs)
            assert len(runs) <= site.makers(kind)
            clock.advance(TTL)
