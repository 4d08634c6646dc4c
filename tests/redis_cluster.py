"""A Redis Cluster of a test's own: nodes on free ports of this machine, each of which can be killed or stopped."""

import socket
import threading
from contextlib import ExitStack, suppress
from functools import cached_property

from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.crc import key_slot
from redis.retry import Retry

from tests.ports import free_ports
from tests.redis_server import RedisServer
from tests.waiting import PATIENCE, until

SLOTS = 16_384
FORMING = 3 * PATIENCE
"""Seconds until all nodes know each other. It takes four or more on an idle machine."""
PATIENT = 60_000
"""Milliseconds until the other nodes count a node as failed: on a busy machine, a node may not run for many seconds."""


class Bus:
    """A proxy in front of a node's bus, by which the other nodes reach it.

    It tells them apart by their source addresses, so links can be cut between some nodes only.
    """

    def __init__(self, port, behind):
        self.blocked = set()
        self._behind = behind
        self._links = []
        self._server = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, sources):
        """Close the links from the addresses ``sources``, and accept no others."""
        self.blocked = set(sources)
        for source, link in [*self._links]:
            if source in self.blocked:
                close(link)

    def close(self):
        self._server.close()
        self.cut({source for source, _ in self._links})

    def _accept(self):
        with suppress(OSError):
            while True:
                link, (source, _) = self._server.accept()
                if source in self.blocked:
                    link.close()
                    continue
                try:
                    onward = socket.create_connection(("127.0.0.1", self._behind))
                except OSError:
                    link.close()
                    continue
                self._links += [(source, link), (source, onward)]
                for ends in ((link, onward), (onward, link)):
                    threading.Thread(target=copy, args=ends, daemon=True).start()


def copy(origin, target):
    with suppress(OSError):
        while data := origin.recv(65_536):
            target.sendall(data)
    for each in (origin, target):
        close(each)


def close(link):
    with suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
    link.close()


class Node(RedisServer):
    """
    Attributes:
        source: the address from which it connects to the buses of others.
        bus: the proxy in front of its bus; None without one.
    """

    bus = None

    def __init__(self, number, failed_after, *, has_proxy):
        ports = free_ports(2)
        self.source = f"127.0.1.{number + 1}" if has_proxy else "127.0.0.1"
        options = {
            "cluster-enabled": "yes",
            "cluster-node-timeout": failed_after,
            "cluster-port": ports[0],
            "cluster-announce-ip": self.host,
            # Otherwise a master that has lost its last slot becomes a replica.
            "cluster-allow-replica-migration": "no",
            # A master waits five seconds for more replicas before it sends its data to the first one.
            "repl-diskless-sync-delay": 0,
        }
        if has_proxy:
            # It is bound to 127.0.0.1, and would refuse its replica, whose address is not that.
            options |= {"bind-source-addr": self.source, "protected-mode": "no"}
            options["cluster-announce-bus-port"] = ports[1]
            self.bus = Bus(ports[1], ports[0])
        self._bus_port = ports[1] if has_proxy else ports[0]
        super().__init__(*(word for name, value in options.items() for word in (f"--{name}", str(value))))

    def __exit__(self, *error):
        super().__exit__(*error)
        if self.bus is not None:
            self.bus.close()

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

    def has_slots(self):
        return bool(self.knows()[self.port]["slots"])

    def meet(self, other):
        self.ask("CLUSTER MEET", other.host, other.port, other._bus_port)

    def knows(self):
        """Return the nodes that it knows, by their ports."""
        return {int(address.rpartition(":")[2]): node for address, node in self.ask("CLUSTER NODES").items()}


class Cluster:
    """``with Cluster() as cluster: cluster.client().set("key", 1)``

    Args:
        replicas: whether each master has a replica.
        failed_after: see ``PATIENT``; with a shorter time, replicas take over.
        has_proxies: whether links between the nodes can be cut.

    Attributes:
        nodes: the masters, and then their replicas in the same order.
    """

    def __init__(self, masters=3, *, replicas=False, failed_after=PATIENT, has_proxies=False):
        self._masters = masters
        self._made = {"failed_after": failed_after, "has_proxy": has_proxies}
        self._replicas = masters if replicas else 0
        self._stack = ExitStack()
        self.nodes = []

    def __enter__(self):
        try:
            for _ in range(self._masters + self._replicas):
                self._start_node()
            self._join()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *error):
        self._stack.close()

    def _start_node(self):
        node = self._stack.enter_context(Node(len(self.nodes), **self._made))
        self.nodes.append(node)
        return node

    def _join(self):
        masters = self.nodes[: self._masters]
        for number, node in enumerate(masters):
            first, end = (SLOTS * each // self._masters for each in (number, number + 1))
            node.ask("CLUSTER ADDSLOTSRANGE", first, end - 1)
            node.ask("CLUSTER SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            self.nodes[0].meet(node)
        assert until(self._is_known, FORMING)
        for master, replica in zip(masters, self.nodes[self._masters :], strict=False):
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

    def split(self, node):
        """Cut the links between ``node`` and the others. Clients still reach all."""
        others = [each for each in self.nodes if each is not node]
        node.bus.cut(each.source for each in others)
        for each in others:
            each.bus.cut({node.source})

    def heal(self):
        for node in self.nodes:
            node.bus.blocked = set()

    def master_of(self, key):
        return self.master_of_slot(key_slot(key.encode()))

    def master_of_slot(self, slot):
        """Return the node that serves a slot, as the first node sees it."""
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
