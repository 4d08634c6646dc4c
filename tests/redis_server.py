"""A redis-server of a test's own, on a free port, nothing on disk, that can be killed, stopped and brought back."""

import redis

from tests.ports import OwnServer

OPTIONS = ("--port", "{port}", "--bind", "127.0.0.1", "--dir", "{folder}", "--save", "", "--appendonly", "no")


class RedisServer(OwnServer):
    """``with RedisServer("--maxmemory", "2mb") as server: server.client().set("key", 1)``

    Args:
        options: of its command line.
        is_sentinel: whether it is a Sentinel.
    """

    def __init__(self, *options, is_sentinel=False):
        # A Sentinel keeps its state in a file.
        first = ("{folder}/sentinel.conf", "--sentinel") if is_sentinel else ()
        super().__init__(["redis-server", *first, *OPTIONS, *options])
        if is_sentinel:
            (self._folder / "sentinel.conf").touch()

    @property
    def url(self):
        return f"redis://{self.host}:{self.port}/0"

    def client(self, **options):
        """A client of it, closed with the server."""
        return self._closed(redis.Redis(self.host, self.port, **options))
