"""A plugin for pytest that runs django-redis's own tests of its cache on OUR_BACKEND of the environment, WheelCache or
HostCache.

To be loaded by ``pytest -p django_redis_suite`` in the folder of django-redis's source distribution, with this folder
on the path: both projects have a package ``tests``. The tests are as they stand. They name django-redis's class in
their settings and imports, and ours takes its place, without jitter, since Redis has none.

Left out are, by name, the tests of connections, of clients, and of hashes, sets and sorted sets, which a cache is not.
Each test comes once: django-redis repeats it for all of its serializers, compressors and clients.
"""

from __future__ import annotations

import os
import re
import sys
from types import ModuleType, SimpleNamespace

from django_redis import cache as django_redis_cache

from wheelcache import django_backend

OF_CLIENTS = {
    # They replace the client, or ask for its mock by a fixture that a plugin of pytest has.
    *("test_set_call_empty_pipeline", "test_delete_pattern_with_custom_count", "test_close_client"),
    *("test_delete_pattern_with_settings_default_scan_count", "test_close_uninitialized_client"),
    *("test_close_with_signal_parameter", "test_primary_replica_switching"),
    "test_primary_replica_switching_with_index",
    # Ignored errors of connections.
    *("test_get_django_omit_exceptions_many_returns_default_arg", "test_get_django_omit_exceptions"),
    *("test_get_django_omit_exceptions_priority_1", "test_get_django_omit_exceptions_priority_2"),
    # It looks at the keys by a connection of its own.
    "test_custom_key_function",
}
OF_OTHER_TYPES = re.compile(
    r"test_(h(set|del|len|keys|exists|ash_)|interstore"
    r"|s(add|card|diff|inter|is|mismember|move|pop|rand|rem|scan|union))"
)

# The tests import django-redis's serializer for msgpack, and do not use it on this cache.
sys.modules.setdefault("msgpack", ModuleType("msgpack"))


class InRedisCachesPlace(getattr(django_backend, os.environ["OUR_BACKEND"])):
    """Takes django-redis's settings. ``client`` is for tests that distinguish its clients and serializers."""

    client = SimpleNamespace(_serializer=None)

    def __init__(self, server, params):
        location = server if isinstance(server, str) else server[0]
        super().__init__(location, {**params, "OPTIONS": {"JITTER": 0}})


django_redis_cache.RedisCache = InRedisCachesPlace


def pytest_collection_modifyitems(config, items):
    def is_left_out(item):
        name = item.originalname
        return name in OF_CLIENTS or OF_OTHER_TYPES.match(name) or "[sqlite_" in item.name

    left_out = [item for item in items if is_left_out(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
