"""A site with several workers. Each of them can be queried, and killed."""

import http.client
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.ports import free_ports
from tests.waiting import PATIENCE, until
from tests.watch.scrape import Scrape

ROOT = Path(__file__).parents[2]
WORKERS = 3


class Worker:
    """A connection that stays open, and therefore always reaches the same worker process."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self.pid = int(self("/"))

    def __call__(self, path):
        self.connection.request("GET", path)
        response = self.connection.getresponse()
        text = response.read().decode()
        assert response.status == 200, text
        return text

    def scrape(self):
        return Scrape(self("/metrics"))


class Site:
    """A gunicorn server with three workers."""

    def __init__(self, folder):
        (self.port,) = free_ports(1)
        self.log = folder / "log"
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "gunicorn", "--workers", str(WORKERS), "--worker-class", "gthread"),
                    *("--threads", "4", "--keep-alive", "75", "--bind", f"127.0.0.1:{self.port}"),
                    *("--log-level", "warning", "tests.watch.metrics_site:application"),
                ],
                cwd=ROOT,
                env={**os.environ, "METRICS_FIGURES": str(folder / "figures")},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.connected = {}

    def workers(self):
        """Return a connection to each worker."""
        assert until(lambda: self._connected() == WORKERS, note=self.log.read_text)
        return list(self.connected.values())

    def _connected(self):
        with suppress(OSError, http.client.HTTPException):
            worker = Worker(self.port)
            if worker.pid in self.connected:
                worker.connection.close()
            else:
                self.connected[worker.pid] = worker
        return len(self.connected)

    def end(self, worker, number):
        os.kill(worker.pid, number)
        worker.connection.close()
        del self.connected[worker.pid]

    def stop(self):
        for each in self.connected.values():
            each.connection.close()
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)
