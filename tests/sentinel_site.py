"""A Redis with two replicas and three Sentinels. Its master fails over, or only its clients can still reach it."""

from contextlib import ExitStack

from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from tests.redis_server import RedisServer
from tests.waiting import until

SERVICE = "mymaster"
PASSWORD = "of-clients"
DOWN_AFTER = 2000
"""Milliseconds after which a Sentinel considers a silent server to be down."""


class SentinelSite:
    """``with SentinelSite() as site: site.client().set("key", 1)``

    Attributes:
        servers: the master, as it was at first, and its replicas.
        sentinels: the Sentinels.
    """

    def __init__(self):
        self._stack = ExitStack()

    def __enter__(self):
        with self._stack:
            options = ("--requirepass", PASSWORD, "--masterauth", PASSWORD, "--repl-diskless-sync-delay", "0")
            self.servers = [self._stack.enter_context(RedisServer(*options)) for _ in range(3)]
            self.sentinels = [self._stack.enter_context(RedisServer(is_sentinel=True)) for _ in range(3)]
            self._connect()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    def _connect(self):
        master, *replicas = self.servers
        for server in self.servers:
            self.direct(server).acl_setuser(
                "sentinel", enabled=True, passwords=["+of-sentinels"], keys=["*"], channels=["*"], categories=["+@all"]
            )
        for replica in replicas:
            self.direct(replica).replicaof(master.host, master.port)
        assert until(lambda: self.direct(master).info("replication")["connected_slaves"] == 2)
        for sentinel in self.sentinels:
            self._watch(sentinel)
        assert until(lambda: all(self._knows_all(sentinel) for sentinel in self.sentinels))

    def _watch(self, sentinel):
        """Let a Sentinel watch the first server as the master."""
        client, master = sentinel.client(), self.servers[0]
        client.sentinel_monitor(SERVICE, master.host, master.port, 2)
        settings = {"auth-user": "sentinel", "auth-pass": "of-sentinels", "failover-timeout": 3000}
        for name, value in {**settings, "down-after-milliseconds": DOWN_AFTER}.items():
            client.sentinel_set(SERVICE, name, value)

    def _knows_all(self, sentinel):
        state = sentinel.client().sentinel_master(SERVICE)
        return (state["num-slaves"], state["num-other-sentinels"], state["flags"]) == (2, 2, "master")

    def direct(self, server):
        """Return a client of one of the servers."""
        return server.client(password=PASSWORD)

    def client(self):
        """Return a client that finds the master through the Sentinels."""
        # redis-py asks a Sentinel that hangs four times, with pauses.
        times = {"socket_timeout": 1, "socket_connect_timeout": 1, "retry": Retry(NoBackoff(), 0)}
        return Sentinel(self.addresses, sentinel_kwargs=times, password=PASSWORD, **times).master_for(SERVICE)

    @property
    def addresses(self):
        """The addresses of the Sentinels."""
        return [(each.host, each.port) for each in self.sentinels]

    def master(self, sentinel=None):
        """Return the server that a Sentinel names as the master: the first one, by default."""
        _, port = (sentinel or self.sentinels[0]).client().sentinel_get_master_addr_by_name(SERVICE)
        return next(each for each in self.servers if each.port == port)

    def fails_over(self, old):
        """Wait until all running Sentinels name another master than ``old``. Return it."""
        assert until(lambda: all(self.master(each) is not old for each in self.sentinels))
        return self.master()

    def split(self):
        """Keep the Sentinels and replicas, but no client, from reaching the master. Return it.

        It goes on as a master, since nobody can demote it, and the others choose a new one.
        """
        old = self.master()
        client = self.direct(old)
        client.acl_setuser("sentinel", enabled=False)
        client.client_kill_filter(user="sentinel")
        return old
