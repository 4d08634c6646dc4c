"""The modules that a site has imported at its start: the child of a fork during an import would wait for its lock."""

import pytest

from tests.near_cache.tiers import TierOnDjango
from tests.scripts import run

SCRIPT = """
import logging, sys
from contextlib import suppress
import django
from django.conf import settings

logging.disable()
place = {{"BACKEND": {backend!r}, "LOCATION": "redis://localhost:1"}}
tiered = {{"BACKEND": "wheelcache.django_backend.TieredCache", "OPTIONS": {{"L2": "default"}}}}
settings.configure(INSTALLED_APPS=["wheelcache.django_backend"], CACHES={{"default": place, "tiered": tiered}})
django.setup()
from django.core.cache import caches

before = {{*sys.modules}}
for call in (lambda cache: cache.set("key", 1, tags=["tag"]), lambda cache: cache.get("key")):
    with suppress(Exception):
        call(caches["tiered"])
print(*{{*sys.modules}} - before)
"""


@pytest.mark.parametrize("kind", ["redis", "django-redis", "redis-cluster"])
def test_the_first_use_imports_nothing_but_modules_for_which_forks_wait(kind):
    imported = run(SCRIPT.format(backend=TierOnDjango.kinds[kind])).split()
    packages = {name.partition(".")[0] for name in imported if not name.startswith("wheelcache.")}
    assert packages <= {"sqlite3", "_sqlite3"}
    assert not [name for name in imported if name.startswith("wheelcache.near_cache")]
