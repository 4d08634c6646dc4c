"""``manage.py wheelcache`` and ``flask wheelcache``. The commands themselves are those of ``test_inquiries``."""

import json
import os
import re

import pytest

from tests.watch.on_both.dashboard_sites import GUARDED
from wheelcache.watch.publisher import INTERVAL


@pytest.mark.usefixtures("clock", "answering")
@pytest.mark.parametrize("make_site", GUARDED.values(), ids=GUARDED, indirect=True)
def test_the_command_of_a_framework_shows_the_figures_and_the_entries_of_its_caches(make_site, clock):
    site = make_site()
    assert site.cache.get("k") == "v"
    clock.advance(INTERVAL)
    (cache,) = json.loads(site.command("--json")[0])["caches"]
    assert (cache["name"], cache["total"]["hits"], cache["total"]["hit_ratio"]) == ("atlas", 1, 1.0)
    shown, _ = site.command()
    assert re.search(rf"^atlas .*\n\s+{os.getpid()} .*100\.0%", shown, re.MULTILINE), shown
    (key,) = site.command("keys", "--cache", site.alias, "*k")[0].split()
    assert "present" in site.command("get", key)[0]
    assert "1 entry deleted" in site.command("delete", key)[0]
    assert "No worker has such an entry in the cache 'atlas'" in site.command("get", key)[1]
