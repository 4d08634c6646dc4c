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
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Result:
    """The answers to anonymous visitors: without wheelcache, during the rehearsal, and with its block."""

    name: str
    verdict: str
    without: list
    before: list
    after: list
    wrong: int

    @property
    def row(self):
        shares = [f"{100 * _share(visits):.0f}%" for visits in (self.before, self.after)]
        milliseconds = [f"{1000 * sum(visit.seconds for visit in v) / len(v):.1f}" for v in (self.without, self.after)]
        return [self.name, str(len(self.after)), *shares, str(self.wrong), *milliseconds, self.verdict]

    @property
    def reasons(self):
        """The reasons of misses after the block, with their numbers."""
        return Counter(visit.cache_status for visit in self.after if not visit.is_hit).most_common(5)


@pytest.fixture(scope="module")
def results():
    found = []
    yield found
    head = ["site", "visits", "hits before", "hits after", "wrong", "ms without", "ms with", "verdict"]
    rows = [head, *(result.row for result in found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print(*("  ".join(map(str.ljust, row, widths)) for row in rows), sep="\n")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("site", [MISAGO, DJANGO_CMS, BAKERYDEMO, CTFD], ids=lambda site: site.name)
def test_the_pasted_block_makes_pages_hit_and_no_body_wrong(site, tmp_path, results):
    with PostgresqlServer() as server:
        copy = site.copied(tmp_path, DATABASE=json.dumps(server.django_database), LOCATION=f"sites-{tmp_path.name}")
        copy.fill()
        result, printed = rehearsed_and_served(copy)
    results.append(result)
    note = f"{printed}\n{result.reasons}"
    assert result.wrong == 0, note
    if site.cannot_gain:
        assert "cannot gain" in result.verdict, note
        assert site.cannot_gain in result.verdict, note
    else:
        assert _share(result.after) >= 0.9, note


def rehearsed_and_served(copy):
    """Return the result of a site, and the output of its rehearsal."""
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
        after = crawl(site, url, pages)
    expected = {(visit.path, visit.kind): visit.body for visit in without}
    wrong = sum(visit.body != expected[visit.path, visit.kind] for visit in after)
    (verdict, *_) = (line for line in printed.splitlines() if not line.startswith(" * "))
    return Result(site.name, verdict, *map(_anonymous, (without, before, after)), wrong), printed


@pytest.mark.timeout(1800)
def test_tests_of_ctfd_pass_with_its_cache_in_a_host_cache(tmp_path):
    (tmp_path / "host_cache.py").write_text(TESTS_CONFIG)
    print(CTFD.copied(tmp_path).run("-m", "pytest", "-q", "-p", "host_cache", *TESTS))


def _anonymous(visits):
    return [visit for visit in visits if visit.is_anonymous]


def _share(visits):
    return sum(visit.is_hit for visit in visits) / len(visits)
