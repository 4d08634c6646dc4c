"""A Redis Cluster of a test's own: nodes on free ports of this machine, each of which can be killed."""

from contextlib import ExitStack
from functools import cached_property

from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.crc import key_slot
from redis.retry import Retry

from tests.ports import free_ports
from tests.redis_server import RedisServer
from tests.waiting import PATIENCE, until

SLOTS = 16_384
MASTERS = 3
FORMING = 3 * PATIENCE
"""Seconds until all nodes know each other. It takes four or more on an idle machine."""


class Node(RedisServer):
    def __init__(self):
        (self._bus_port,) = free_ports(1)
        options = {
            "cluster-enabled": "yes",
            # In milliseconds. On a busy machine, a node may not run for many seconds.
            "cluster-node-timeout": 60_000,
            "cluster-port": self._bus_port,
            "cluster-announce-ip": self.host,
            # Otherwise a master that has lost its last slot becomes a replica.
            "cluster-allow-replica-migration": "no",
            # A master waits five seconds for more replicas before it sends its data to the first one.
            "repl-diskless-sync-delay": 0,
        }
        super().__init__(*(word for name, value in options.items() for word in (f"--{name}", str(value))))

    def ask(self, *command):
        """Return the answer to a command as redis-py parses it."""
        return self._asked.execute_command(*command)

    @cached_property
    def _asked(self):
        """One client for all questions: those of a cluster that is slow to form would use up the open files. It tries
        once more only, since a node that hangs takes ``PATIENCE`` each time."""
        return self.client(decode_responses=True, socket_timeout=PATIENCE, retry=Retry(NoBackoff(), 1))

    def identity(self):
        return self.ask("CLUSTER MYID")

    def meet(self, other):
        self.ask("CLUSTER MEET", other.host, other.port, other._bus_port)

    def knows(self):
        """Return the nodes that it knows, by their ports."""
        return {int(address.rpartition(":")[2]): node for address, node in self.ask("CLUSTER NODES").items()}


class Cluster:
    """``with Cluster() as cluster: cluster.client().set("key", 1)``

    Args:
        replicas: whether each master has a replica.

    Attributes:
        nodes: the masters, and then their replicas in the same order.
    """

    def __init__(self, *, replicas=False):
        self._replicas = MASTERS if replicas else 0
        self._stack = ExitStack()
        self.nodes = []

    def __enter__(self):
        try:
            for _ in range(MASTERS + self._replicas):
                self._start_node()
            self._join()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *error):
        self._stack.close()

    def _start_node(self):
        node = self._stack.enter_context(Node())
        self.nodes.append(node)
        return node

    def _join(self):
        masters = self.nodes[:MASTERS]
        for number, node in enumerate(masters):
            first, end = (SLOTS * each // MASTERS for each in (number, number + 1))
            node.ask("CLUSTER ADDSLOTSRANGE", first, end - 1)
            node.ask("CLUSTER SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            self.nodes[0].meet(node)
        assert until(self._is_known, FORMING)
        for master, replica in zip(masters, self.nodes[MASTERS:], strict=False):
            replica.ask("CLUSTER REPLICATE", master.identity())
        assert until(self.is_whole, FORMING, note=lambda: self.nodes[0].ask("CLUSTER NODES"))

    def _is_known(self):
        return all(
            len(known) == len(self.nodes) and not any("handshake" in each["flags"] for each in known.values())
            for known in (node.knows() for node in self.nodes)
        )

    def is_whole(self):
        """Return whether all nodes agree, and the replicas are connected to their masters."""
        views, replicas = set(), 0
        for node in self.nodes:
            info = node.ask("CLUSTER INFO")
            views.add((info["cluster_state"], info["cluster_slots_ok"], info["cluster_current_epoch"]))
            replicas += node.ask("INFO", "replication").get("master_link_status") == "up"
        return len(views) == 1 and ("ok", str(SLOTS)) == next(iter(views))[:2] and replicas >= self._replicas

    def add_node(self):
        """Start another master, without slots. Return it when all nodes know it."""
        node = self._start_node()
        self.nodes[0].meet(node)
        assert until(lambda: self._is_known() and self.is_whole(), FORMING)
        return node

    def move(self, slots, origin, target):
        """Move slots with their keys, as redis-cli does, from one master to another."""
        origin_id, target_id = origin.identity(), target.identity()
        others = [node for node in self.nodes if node not in (origin, target) and "master" in node.ask("ROLE")]
        for slot in slots:
            target.ask("CLUSTER SETSLOT", slot, "IMPORTING", origin_id)
            origin.ask("CLUSTER SETSLOT", slot, "MIGRATING", target_id)
            while keys := origin.ask("CLUSTER GETKEYSINSLOT", slot, 100):
                origin.ask("MIGRATE", target.host, target.port, "", 0, 5000, "KEYS", *keys)
            for node in (target, origin, *others):
                node.ask("CLUSTER SETSLOT", slot, "NODE", target_id)

    def master_of(self, key):
        """Return the node that serves a key, as the first node sees it."""
        slot = key_slot(key.encode())
        for port, known in self.nodes[0].knows().items():
            if any(int(each[0]) <= slot <= int(each[-1]) for each in known["slots"]):
                return next(node for node in self.nodes if node.port == port)
        return None

    @property
    def url(self):
        return ",".join(f"redis://{node.host}:{node.port}" for node in self.nodes)

    def client(self, **options):
        """Return a client that finds the nodes by any of them, closed with the cluster."""
        nodes = [ClusterNode(node.host, node.port) for node in self.nodes]
        client = RedisCluster(startup_nodes=nodes, **options)
        self._stack.callback(client.close)
        return client
