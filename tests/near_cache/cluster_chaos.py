"""Reads of a TieredCache over a Redis Cluster whose nodes fail, fail over and move their slots.

``python -m tests.near_cache.cluster_chaos EVENT N``: one process writes increasing numbers, others read them through
copies, and the event happens again and again until they have read N numbers. A read is wrong if it returns a number
although a larger one was acknowledged more than 2 s before the read began. ``--unchecked`` leaves out the question
about the topology, which shows that the run can fail.

A cluster may lose acknowledged writes when a master dies before its replica has them. No cache can help that, so the
events happen when the replica is up to date.
"""

import argparse
import logging
import multiprocessing
import os
import random
import signal
import threading
import time
from contextlib import contextmanager, suppress

from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.crc import key_slot
from redis.retry import Retry

from tests.redis_cluster import PATIENT, Cluster
from tests.waiting import PATIENCE, happens, join, until

KEYS = 30
READERS = 3
FAILED_AFTER = 2000
"""Milliseconds until the other nodes count a node as failed, in events in which one fails."""
TOLD_WITHIN = 2.0
"""Seconds: the promise of ``redis_tracking``."""
NUMBERS = 20_000

processes = multiprocessing.get_context("spawn")


class Ledger:
    """The memory that the processes share.

    Attributes:
        last: the last acknowledged number of each key.
        acknowledged: when each number of each key was acknowledged; 0.0 if it was not.
        is_over: whether the readers and the writer stop.
        reads, outdated: the number of reads so far, and of those that were too old, for each reader.
        may_write: held by the writer during a write.
    """

    def __init__(self):
        self.last = processes.RawArray("L", KEYS)
        self.acknowledged = processes.RawArray("d", KEYS * NUMBERS)
        self.is_over = processes.RawValue("b", 0)
        self.reads = processes.RawArray("L", READERS)
        self.outdated = processes.RawArray("L", READERS)
        self.may_write = processes.Lock()

    def write(self, key, number):
        self.acknowledged[key * NUMBERS + number] = time.monotonic()
        self.last[key] = number

    def age(self, key, number, began):
        """Return the seconds for which ``number`` was outdated when a read of it began."""
        for later in range(number + 1, self.last[key] + 1):
            when = self.acknowledged[key * NUMBERS + later]
            if when:
                return max(0.0, began - when)
        return 0.0


def write(ledger, ports):
    client = client_of(ports)
    number = 0
    while not ledger.is_over.value:
        number += 1
        for key in range(KEYS):
            # Not only redis-py's own exceptions: for a node that it does not know yet, it raises AttributeError.
            with ledger.may_write, suppress(Exception):
                client.set(f":1:k{key}", number)
                ledger.write(key, number)
            time.sleep(0.01)


def client_of(ports):
    nodes = [ClusterNode("127.0.0.1", port) for port in ports]
    # The first answers may take long on a busy machine.
    made = RedisCluster(startup_nodes=nodes, socket_timeout=1, socket_connect_timeout=1, retry=Retry(NoBackoff(), 60))
    made.retry = Retry(NoBackoff(), 0)
    return made


def read(ledger, ports, number, is_checked, results):
    cache = configured_cache(ports)
    if not is_checked:
        from wheelcache.near_cache.cluster_tracking import Topology

        Topology.is_confirmed = lambda topology: True
    pause = [0.0]
    threading.Thread(target=note_pauses, args=(pause,), daemon=True).start()
    random.seed(number)
    ages, worst, errors = [], 0.0, 0
    while not ledger.is_over.value:
        key, began = random.randrange(KEYS), time.monotonic()
        try:
            found = cache.get(f"k{key}")
        except Exception:
            errors += 1
            time.sleep(0.01)
            continue
        if found is not None:
            age = ledger.age(key, found, began)
            worst = max(worst, age)
            if age > TOLD_WITHIN:
                ages.append(age)
                ledger.outdated[number] += 1
        ledger.reads[number] += 1
        # Thousands of reads a second would need a processor for each reader.
        time.sleep(0.002)
    limit = TOLD_WITHIN + (pause[0] if results.allows_pauses else 0.0)
    wrong = sum(age > limit for age in ages)
    results.queue.put((ledger.reads[number], cache.store.cache.stats().hits, errors, wrong, worst, pause[0]))
    cache.store.level.stop_tracking()


def note_pauses(longest):
    """Note how long a thread of this process has waited for the interpreter."""
    while True:
        began = time.monotonic()
        time.sleep(0.01)
        longest[0] = max(longest[0], time.monotonic() - began - 0.01)


def configured_cache(ports):
    """Return the cache of a Django site."""
    import django
    from django.conf import settings

    logging.getLogger("wheelcache").setLevel(os.environ.get("CHAOS_LOG", "ERROR"))
    behind = {
        "BACKEND": "wheelcache.django_backend.RedisClusterCache",
        "LOCATION": [f"redis://127.0.0.1:{port}" for port in ports],
        "OPTIONS": {"retry": Retry(NoBackoff(), 0)},
    }
    in_front = {
        "BACKEND": "wheelcache.django_backend.TieredCache",
        "OPTIONS": {"L2": "behind", "L1_TIMEOUT": 600, "L2_TIMEOUT": 0.3},
    }
    settings.configure(CACHES={"behind": behind, "default": in_front})
    django.setup()
    from django.core.cache import caches

    return caches["default"]


# The events. Each is done when the cluster is whole again.


@contextmanager
def quiet(ledger, cluster, victim, key):
    """Hold the writer while the replica of ``victim``, the master of ``key``, is up to date."""
    with ledger.may_write:
        victim.client().pipeline(transaction=False).set(f"{{{key}}}", 1).execute_command(
            "WAIT", 1, 1000 * PATIENCE
        ).execute()
        yield


def kill(ledger, cluster, victim, key):
    with quiet(ledger, cluster, victim, key):
        victim.kill()
    assert until(lambda: is_replaced(cluster, victim))
    time.sleep(2)
    victim.start()


def hang(ledger, cluster, victim, key):
    with quiet(ledger, cluster, victim, key):
        victim.pause()
    assert until(lambda: is_replaced(cluster, victim))
    time.sleep(2)
    victim.resume()


def failover(ledger, cluster, victim, key):
    identity = victim.identity()
    replicas = lambda: {port for port, node in victim.knows().items() if node["master_id"] == identity}  # noqa: E731
    # After another failover, it may take a while until the victim knows its replica.
    assert until(replicas)
    replica = next(node for node in cluster.nodes if node.port in replicas())
    replica.ask("CLUSTER FAILOVER")
    # On a busy machine, it may take longer than the 5 s after which the replica gives up.
    while not happens(lambda: is_replaced(cluster, victim), seconds=10):
        replica.ask("CLUSTER FAILOVER")


def split(ledger, cluster, victim, key):
    with quiet(ledger, cluster, victim, key):
        cluster.split(victim)
    assert until(lambda: is_replaced(cluster, victim))
    time.sleep(4)
    cluster.heal()


def move_to(target):
    def move(ledger, cluster, victim, key):
        goal = target(cluster, victim)
        served = {key_slot(f":1:k{number}".encode()) for number in range(KEYS)}
        cluster.move(sorted(slot for slot in served if cluster.master_of_slot(slot) is victim), victim, goal)
        time.sleep(4)

    return move


def other_master(cluster, victim):
    return next(node for node in cluster.nodes if node is not victim and node.has_slots())


def empty_master(cluster, victim):
    """Return a master without slots, as a new node is."""
    empty = [node for node in cluster.nodes if "master" in node.ask("ROLE") and not node.has_slots()]
    return empty[0] if empty else cluster.add_node()


EVENTS = {
    "kill": kill,
    "hang": hang,
    "failover": failover,
    "migration": move_to(other_master),
    "new-node": move_to(empty_master),
    "split": split,
}


def is_replaced(cluster, victim):
    """Return whether the other nodes agree that ``victim`` serves no slots."""
    views = [node.knows() for node in cluster.nodes if node is not victim]
    return all(
        not view[victim.port]["slots"] and sum(bool(node["slots"]) for node in view.values()) >= 3 for view in views
    )


class Results:
    """How the readers report, and whether time for which they did not run may make a read older."""

    def __init__(self, *, allows_pauses):
        self.queue = processes.Queue()
        self.allows_pauses = allows_pauses


def run(event, reads, *, is_checked=True, allows_pauses=False):
    """Return the sums over the readers: reads, hits, errors, wrong reads; and the greatest age and pause in seconds."""
    ledger, results = Ledger(), Results(allows_pauses=allows_pauses)
    failed_after = FAILED_AFTER if event in ("kill", "hang", "split") else PATIENT
    with Cluster(replicas=True, failed_after=failed_after, has_proxies=event == "split") as cluster:
        ports = [node.port for node in cluster.nodes]
        started = [processes.Process(target=write, args=(ledger, ports))]
        started += [
            processes.Process(target=read, args=(ledger, ports, number, is_checked, results))
            for number in range(READERS)
        ]
        for process in started:
            process.start()
        try:
            assert until(lambda: all(count > 100 for count in ledger.reads), 3 * PATIENCE)
            goal, cycles = sum(ledger.reads) + reads, 0
            while not cycles or sum(ledger.reads) < goal:
                key = f":1:k{cycles % KEYS}"
                EVENTS[event](ledger, cluster, cluster.master_of(key), key)
                assert until(cluster.is_whole)
                time.sleep(2)
                cycles += 1
            # The fault shows when the writer has written a key whose copies are no longer current.
            assert is_checked or until(lambda: any(ledger.outdated))
        finally:
            ledger.is_over.value = 1
        found = [results.queue.get(timeout=PATIENCE) for _ in range(READERS)]
        for process in started:
            join(process)
            assert process.exitcode == 0
    *sums, ages, pauses = zip(*found, strict=True)
    return (*map(sum, sums), max(ages), max(pauses))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("event", choices=EVENTS)
    parser.add_argument("reads", type=int)
    parser.add_argument("--unchecked", action="store_true")
    asked = parser.parse_args()
    reads, hits, errors, wrong, oldest, pause = run(asked.event, asked.reads, is_checked=not asked.unchecked)
    print(
        f"{asked.event}: {reads} reads, {hits} of copies, {errors} errors, {wrong} wrong, the oldest {oldest:.2f} s; "
        f"a thread waited up to {pause:.2f} s"
    )
