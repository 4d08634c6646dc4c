"""Django's RedisCache for a Redis Cluster: ``"BACKEND": "wheelcache.django_backend.RedisClusterCache"``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

from django.core.cache.backends.redis import RedisCache, RedisCacheClient
from django.core.exceptions import ImproperlyConfigured
from django.utils.functional import cached_property

from wheelcache.django_backend.site_settings import cache_in_words
from wheelcache.engine import options

OF_ONE_SERVER: Final = ("pool_class", "parser_class")
"""Options of Django's RedisCache that the client of a cluster would ignore."""


class RedisClusterCacheClient(RedisCacheClient):
    """Django's client, over redis-py's client of a cluster, which sends each command to the node that has the key.

    Calls with many keys are pipelines of commands with one key, since the keys are on several nodes: one round trip to
    each node, but no transaction.

    Args:
        servers: the URLs of some nodes. The first one also contains the credentials for all.
        options: keyword arguments of ``redis.RedisCluster``.

    Attributes:
        options: see above.
    """

    _lib: Any
    _serializer: Any

    def __init__(self, servers: list[str], serializer: Any = None, **options: Any) -> None:
        super().__init__(servers, serializer)
        self.options = options
        self._urls = servers
        # By process: the locks of a client that is in use are not those of the child of a fork.
        self._clusters: dict[int, Any] = {}

    def get_cluster(self) -> Any:
        """Return the client of this process. The first call connects."""
        found = self._clusters.get(os.getpid())
        return self._clusters.setdefault(os.getpid(), self._connected()) if found is None else found

    def _connected(self) -> Any:
        first, *others = self._urls
        nodes = [self._lib.connection.parse_url(url) for url in others]
        return self._lib.RedisCluster.from_url(
            first,
            startup_nodes=[self._lib.cluster.ClusterNode(node["host"], node.get("port", 6379)) for node in nodes],
            **self.options,
        )

    def get_client(self, key: Any = None, *, write: bool = False) -> Any:
        return self.get_cluster()

    def get_many(self, keys: Iterable[Any]) -> dict[Any, Any]:
        keys, pipeline = list(keys), self.get_cluster().pipeline()
        for key in keys:
            pipeline.get(key)
        found = zip(keys, pipeline.execute(), strict=True)
        return {key: self._serializer.loads(value) for key, value in found if value is not None}

    def set_many(self, data: Mapping[Any, Any], timeout: Any) -> None:
        if timeout == 0:
            self.delete_many(data)
            return
        pipeline = self.get_cluster().pipeline()
        for key, value in data.items():
            pipeline.set(key, self._serializer.dumps(value), ex=timeout)
        pipeline.execute()

    def delete_many(self, keys: Iterable[Any]) -> None:
        pipeline = self.get_cluster().pipeline()
        for key in keys:
            pipeline.delete(key)
        pipeline.execute()


_clients: Final[dict[str, RedisClusterCacheClient]] = {}
"""The clients by settings. Django makes a backend object for each thread, and with ASGI for each request; finding the
nodes would take each of them 25 ms."""


class RedisClusterCache(RedisCache):
    """Django's RedisCache, with the same options, over a Redis Cluster.

    LOCATION is the URL of one node, or of several, since one may be down: ``["redis://one:6379", "redis://two:6379"]``.
    OPTIONS are ``serializer`` and the arguments of ``redis.RedisCluster``.

    Raises:
        ImproperlyConfigured: if an option has no effect on a cluster.
    """

    _servers: list[str]
    _options: dict[str, Any]

    def __init__(self, server: str | list[str], params: dict[str, Any]) -> None:
        super().__init__(server, params)
        for name in OF_ONE_SERVER:
            if name in self._options:
                raise ImproperlyConfigured(
                    f"Wrong setting of {cache_in_words(str(server), params)}: {name} must be left out, since it has no "
                    f"effect on a Redis Cluster, not {options.shown(self._options[name])}."
                )

    @cached_property
    def _cache(self) -> RedisClusterCacheClient:
        client = RedisClusterCacheClient(self._servers, **self._options)
        return _clients.setdefault(repr((self._servers, self._options)), client)
