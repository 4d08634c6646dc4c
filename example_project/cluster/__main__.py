"""``python -m cluster``: two machines of two workers each and one Redis, as plain processes, and the delay of writes.

A machine is a directory in which its workers share their figures. Each worker in turn writes a value, and all four read
until they see it.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from urllib.error import URLError
from urllib.request import urlopen

MACHINES = ("a", "b")
WORKERS = 2
WRITES = 20
"""The number of writes by each worker."""
START_SECONDS = 30.0


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def running(*command, **environment):
    process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def ask(address, path):
    with urlopen(f"{address}/{path}", timeout=START_SECONDS) as answer:
        return json.load(answer)


def wait_for(address):
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            return ask(address, "")
        except (URLError, ConnectionError):
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def delays_of(workers, writer, value):
    """Return, for each worker, the seconds from the end of the write until it saw the value."""
    with ThreadPoolExecutor(len(workers)) as pool:
        seen = [pool.submit(ask, address, f"see?value={value}") for address in workers.values()]
        # All workers have begun to read by then, so each has a copy of the earlier value.
        time.sleep(0.05)
        written = ask(workers[writer], f"write?value={value}")["at"]
        return [max(0.0, each.result()["at"] - written) for each in seen]


def measure(workers):
    delays = {name: {True: [], False: []} for name in workers}
    for number in range(WRITES):
        for writer in workers:
            for name, delay in zip(workers, delays_of(workers, writer, f"{writer}-{number}"), strict=True):
                delays[name][name == writer].append(delay * 1000)
    return delays


def main():
    redis = shutil.which("valkey-server") or shutil.which("redis-server")
    if redis is None:
        sys.exit("The cluster needs Valkey or Redis: apt-get install redis-server")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wheelcache-cluster-")))
        port = free_port()
        options = ("--bind", "127.0.0.1", "--dir", str(folder), "--save", "", "--appendonly", "no")
        stack.enter_context(running(redis, "--port", str(port), *options))
        workers = {}
        for machine in MACHINES:
            (folder / machine).mkdir(mode=0o700)
            for number in range(1, WORKERS + 1):
                listen = f"127.0.0.1:{free_port()}"
                command = (sys.executable, "-m", "cluster.worker", listen)
                environment = {
                    "CLUSTER_REDIS": f"redis://127.0.0.1:{port}/0",
                    "CLUSTER_MACHINE": str(folder / machine),
                }
                stack.enter_context(running(*command, **environment))
                workers[f"{machine}{number}"] = f"http://{listen}"
        for address in workers.values():
            wait_for(address)
        print(f"Two machines of {WORKERS} workers each, one {Path(redis).name}. Each worker wrote {WRITES} values.\n")
        print("worker   saw its own writes after   saw writes of the others after (ms: median, worst)")
        for name, delays in measure(workers).items():
            own, others = delays[True], delays[False]
            print(f"{name:6}{median(own):12.2f}{max(own):9.2f}{median(others):21.2f}{max(others):9.2f}")


if __name__ == "__main__":
    main()
