"""A fork during the first use of a cache: the child can use the cache, too."""

import sys

import pytest

from tests.near_cache.tiers import TierOnDjango
from tests.scripts import FORKING, run

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(sys.platform == "win32", reason="there are no forks"),
]

SCRIPT = '''
import os, signal, threading
from importlib.machinery import SourceFileLoader
from wheelcache.engine.guests import IMPORTS

def use(key):
    cache.set(key, 1, tags=[key])
    assert cache.get(key) == 1
    cache.delete_tags(key)

def use_first():
    use("first")
    may_fork.set()

def hold_up(loader, module, execute=SourceFileLoader.exec_module):
    """Execute a module. The other thread does so when the fork has begun, if forks wait for the import, and otherwise
    after the fork. It holds the lock of the module until then."""
    if threading.current_thread() is user and not is_forked.is_set():
        forks_wait = IMPORTS.lock._is_owned()
        if not forks_wait:
            print("imports", module.__name__, flush=True)
        may_fork.set()
        (is_forking if forks_wait else is_forked).wait()
    execute(loader, module)

may_fork, is_forking, is_forked = threading.Event(), threading.Event(), threading.Event()
# The hook that is registered last is called first.
os.register_at_fork(before=is_forking.set)
user = threading.Thread(target=use_first)
'''

AFTER = """
SourceFileLoader.exec_module = hold_up
user.start()
may_fork.wait()
pid = os.fork()
if pid == 0:
    signal.alarm(100)
    use("second")
    print("child", flush=True)
    os._exit(0)
is_forked.set()
user.join()
assert os.waitpid(pid, 0)[1] == 0, "the child hangs"
print("parent", flush=True)
"""

DJANGO = """
import django
from django.conf import settings

settings.configure(LOGGING_CONFIG=None, INSTALLED_APPS=["wheelcache.django_backend"], CACHES={caches!r})
django.setup()
from django.core.cache import caches

class Cache:
    def __getattr__(self, name):
        return getattr(caches["tiered"], name)

cache = Cache()
"""


@pytest.mark.parametrize("kind", ["django-redis", "redis-cluster"])
def test_the_child_of_a_fork_during_the_first_use_in_django_does_not_hang(kind, shared_redis, shared_cluster):
    place = shared_cluster.url if kind == "redis-cluster" else f"redis://localhost:{shared_redis.port}"
    caches = {
        "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        "behind": {"BACKEND": TierOnDjango.kinds[kind], "LOCATION": place},
        "tiered": {"BACKEND": "wheelcache.django_backend.TieredCache", "OPTIONS": {"L2": "behind"}},
    }
    assert run(SCRIPT + DJANGO.format(caches=caches) + AFTER, options=FORKING) == "child\nparent\n"
