"""``make sites``: sites that nobody here wrote, from their public sources, with the block that a rehearsal prints.

Each site is filled with its own data and served by two workers. Visitors request its pages during a rehearsal. The
block that ``wheelcache rehearsal`` prints is pasted, nothing else is changed, and the visitors come again. Each body is
compared with that of the same site without wheelcache.

The file name keeps these tests out of ``make test`` and ``make check``: they fetch sources and packages for each site,
and take minutes.
"""

import json
import re
import time
from collections import Counter

import pytest

from tests.postgresql_server import PostgresqlServer
from tests.sites.bakerydemo import BAKERYDEMO
from tests.sites.ctfd import CTFD, TESTS, TESTS_CONFIG
from tests.sites.django_cms import DJANGO_CMS
from tests.sites.misago import MISAGO
from tests.sites.visitors import KINDS, crawl, pages_of

FIRST = 'rules=[("/*", ttl(60))]'
PAGES = 6
PUBLISHED_AFTER = 7
"""Seconds after which all workers have published their figures."""

_BLOCK = re.compile(r"^\w+=\[.*", re.DOTALL | re.MULTILINE)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("site", [MISAGO, DJANGO_CMS, BAKERYDEMO, CTFD], ids=lambda site: site.name)
def test_the_pasted_block_makes_pages_hit_and_no_body_wrong(site, tmp_path):
    with PostgresqlServer() as server:
        copy = site.copied(tmp_path, DATABASE=json.dumps(server.django_database), LOCATION=f"sites-{tmp_path.name}")
        copy.fill()
        printed, without, before, after = rehearsed_and_served(copy)
    expected = {(visit.path, visit.kind): visit.body for visit in without}
    wrong = sum(visit.body != expected[visit.path, visit.kind] for visit in after)
    without, before, after = ([visit for visit in some if visit.is_anonymous] for some in (without, before, after))
    (verdict, *_) = (line for line in printed.splitlines() if not line.startswith(" * "))
    print(f"{site.name}: {len(after)} visits, hits {_share(before):.0%} before and {_share(after):.0%} after;")
    print(f"{wrong} wrong, {_milliseconds(without):.1f} ms without, {_milliseconds(after):.1f} ms with it: {verdict}")
    note = f"{printed}\n{Counter(visit.cache_status for visit in after if not visit.is_hit).most_common(5)}"
    assert wrong == 0, note
    if site.cannot_gain:
        assert "cannot gain" in verdict, note
        assert site.cannot_gain in verdict, note
    else:
        assert _share(after) >= 0.9, note


def rehearsed_and_served(copy):
    """Return the output of the rehearsal, and the answers without wheelcache, during it and with its block."""
    site = copy.site
    with copy.served("plain_site") as url:
        pages = pages_of(site, url, PAGES)
        without = crawl(site, url, pages, visitors=KINDS)
    copy.set_options(f"rehearse=0.5, {FIRST}")
    with copy.served("cached_site") as url:
        before = crawl(site, url, pages)
        time.sleep(PUBLISHED_AFTER)
        printed = copy.run(*site.rehearsal)
    block = match[0] if (match := _BLOCK.search(printed)) else ""
    # An option of the block replaces that of the same name.
    copy.set_options(block if "rules=" in block else f"{FIRST}, {block}")
    with copy.served("cached_site") as url:
        return printed, without, before, crawl(site, url, pages)


@pytest.mark.timeout(1800)
def test_tests_of_ctfd_pass_with_its_cache_in_a_host_cache(tmp_path):
    (tmp_path / "host_cache.py").write_text(TESTS_CONFIG)
    print(CTFD.copied(tmp_path).run("-m", "pytest", "-q", "-p", "host_cache", *TESTS))


def _share(visits):
    return sum(visit.is_hit for visit in visits) / len(visits)


def _milliseconds(visits):
    return 1000 * sum(visit.seconds for visit in visits) / len(visits)
