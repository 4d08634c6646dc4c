"""``python -m cluster``: two machines in three setups, the delay of writes, the speed of reads, and wrong reads.

A machine is a process with a directory in place of its shared memory. One machine writes numbers, and the other one
reads all the time. A read is wrong if it returns a number that is more than two seconds older than an acknowledged
write. The servers are those of the tests.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from statistics import median
from urllib.request import urlopen

import psutil
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.ports import serving
from tests.postgresql_server import PostgresqlServer, programs
from tests.redis_cluster import Cluster
from tests.redis_server import RedisServer

SERVERS = {"Redis": RedisServer, "Cluster": Cluster, "none": PostgresqlServer}
"""What the two machines have in common, by setup. With "none", only the database: no machine
is notified of the writes of the other."""
WRITES = 20
PAUSE_SECONDS = 0.15
"""Between two writes."""
WRONG_AFTER = 2.0
"""The age in seconds from which an overwritten number is wrong."""
REMAINDER_SECONDS = WRONG_AFTER + 0.5
"""The reader goes on for this long after the last write, so that each overwritten number could be read as wrong."""
MOSTLY = 0.9
"""The share of hits without which a figure would not be that of a cached read."""
START_SECONDS = 60.0


@dataclass(frozen=True)
class Result:
    """The measurement of one setup.

    Attributes:
        delays: for each write that the reader has seen, seconds from its acknowledgement to the first read of it or of
            a later one.
        reads: the number of reads.
        hits: the number of reads that neither a store nor a database answered.
        wrong: the number of wrong reads.
        per_second: reads per second of reading.
    """

    delays: list
    reads: int
    hits: int
    wrong: int
    per_second: float


def missing_packages():
    """Return the names of the Debian packages that this computer lacks."""
    missing = [] if which("redis-server") else ["redis-server"]
    return missing if programs() else [*missing, "postgresql"]


def ask(address, path=""):
    with urlopen(f"{address}/{path}", timeout=START_SECONDS) as answer:
        return json.load(answer)


@contextmanager
def machine(path, environment):
    """Start the site on a machine, and yield its address."""
    path.mkdir(mode=0o700)
    command = (sys.executable, "-m", "cluster.machine", "127.0.0.1:{port}")
    environment = {**os.environ, **environment, "CLUSTER_MACHINE": str(path)}
    with serving(command, env=environment, stdout=subprocess.DEVNULL) as port:
        yield f"http://127.0.0.1:{port}"


def prepare(setup, server):
    """Return the environment of the workers, after the creation of the table."""
    if not isinstance(server, PostgresqlServer):
        return {"CLUSTER_SETUP": setup, "CLUSTER_REDIS": server.url.partition(",")[0]}
    with server.connect() as connection:
        connection.execute("CREATE TABLE cluster_number AS SELECT 0 AS number")
    return {"CLUSTER_SETUP": setup, "CLUSTER_DATABASE": json.dumps(server.django_database)}


def is_cached(address):
    """Return whether the reads of a worker are hits."""
    watched = ask(address, "watch?seconds=0.1")
    return watched["hits"] > sum(count for *_, count in watched["records"]) * MOSTLY


def measure(setup, folder, writes):
    """Return the result of a setup. All that it starts has ended afterwards."""
    with ExitStack() as stack:
        environment = prepare(setup, stack.enter_context(SERVERS[setup]()))
        # Before the machines, so that they end first, and with them the requests of the pool.
        pool = stack.enter_context(ThreadPoolExecutor(1))
        writer, reader = (stack.enter_context(machine(folder / f"{setup}-{name}", environment)) for name in "ab")
        written = [ask(writer, "write?value=0")["at"]]
        until = time.monotonic() + START_SECONDS
        while ask(reader)["value"] != 0 or not is_cached(reader):
            if time.monotonic() > until:
                raise RuntimeError(f"{setup}: the reads of the second machine are not cached")
        seconds = writes * PAUSE_SECONDS + REMAINDER_SECONDS
        watching = pool.submit(ask, reader, f"watch?seconds={seconds}")
        for number in range(1, writes + 1):
            time.sleep(PAUSE_SECONDS)
            written.append(ask(writer, f"write?value={number}")["at"])
        return result_of(watching.result(), written)


def result_of(watched, written):
    """Return the result, given the records of a reader, and the times at which the numbers 0, 1, … were written."""
    records = watched["records"]
    delays = []
    for number, at in enumerate(written[1:], 1):
        seen = next((ended for _, ended, value, _ in records if value >= number), None)
        if seen is not None:
            delays.append(max(0.0, seen - at))
    reads = sum(count for *_, count in records)
    overwritten = [*written[1:], float("inf")]
    wrong = sum(count for began, _, value, count in records if began > overwritten[value] + WRONG_AFTER)
    return Result(delays, reads, watched["hits"], wrong, reads / watched["reading"])


def check(setup, result, writes):
    """Raise an error if a result contradicts the name of its setup."""
    assert result.hits > result.reads * MOSTLY, f"{setup}: only {result.hits:,} of {result.reads:,} reads were hits"
    if setup == "none":
        # Otherwise the other two zeros would prove nothing.
        assert result.wrong > 0, "none: two machines without notifications must return outdated values"
        assert result.delays == [], "none: the second machine has seen a write"
    else:
        assert result.wrong == 0, f"{setup}: {result.wrong:,} of {result.reads:,} reads were wrong"
        assert len(result.delays) == writes, f"{setup}: only {len(result.delays)} of {writes} writes have arrived"


def table_of(results, writes):
    table = Table(title=f"{writes} writes on one machine, as another machine reads them")
    table.add_column("setup", no_wrap=True)
    for heading in ("delay, ms\nmedian", "delay, ms\nworst", "reads per\nsecond", "reads", "wrong\nreads"):
        table.add_column(heading, justify="right", no_wrap=True)
    for setup, result in results.items():
        delays = [f"{f(result.delays) * 1000:.1f}" if result.delays else "never" for f in (median, max)]
        table.add_row(setup, *delays, f"{result.per_second:,.0f}", f"{result.reads:,}", f"{result.wrong:,}")
    return table


def main():
    parser = argparse.ArgumentParser(prog="cluster", description=__doc__.partition("\n")[0])
    parser.add_argument("--writes", type=int, default=WRITES, help="writes in each setup (%(default)s)")
    writes = parser.parse_args().writes
    if missing := missing_packages():
        sys.exit(f"make cluster needs the Debian packages {' '.join(missing)}: make packages installs them.")
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
    results = {}
    with tempfile.TemporaryDirectory(prefix="wheelcache-cluster-") as folder, bars:
        task = bars.add_task("setups", total=len(SERVERS))
        for setup in SERVERS:
            bars.update(task, description=setup)
            results[setup] = measure(setup, Path(folder), writes)
            check(setup, results[setup], writes)
            bars.advance(task)
    Console().print(table_of(results, writes))
    print(f"A read is wrong if it returns a number that was overwritten more than {WRONG_AFTER:g} s earlier.")
    print("Redis and Cluster are read with get, the last one with get_or_set, which loads from PostgreSQL.")


def end_the_rest():
    """End the processes whose start was interrupted: no other code knows them."""
    left = psutil.Process().children(recursive=True)
    for each in left:
        with suppress(psutil.NoSuchProcess):
            each.terminate()
    for each in psutil.wait_procs(left, timeout=10)[1]:
        each.kill()


if __name__ == "__main__":
    # Also after `kill`, no server stays.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        main()
    except KeyboardInterrupt:
        end_the_rest()
        sys.exit("Interrupted: all servers and processes have ended.")
