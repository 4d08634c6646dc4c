"""For the tests of the two commands: a site on gunicorn, and commands that look at it from a third process."""

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests.waiting import PATIENCE, until

ROOT = Path(__file__).parents[1]
WORKERS = 2


class Site:
    """Two workers, and what each of them was asked for.

    Attributes:
        gets: by pid, the hits and misses that it was asked for.
    """

    def __init__(self, url):
        self.url = url
        self.gets = {}

    def ask(self, hits, misses):
        """Have whichever worker answers set a key, and miss and hit; count it for that one. Its pid."""
        with urlopen(f"{self.url}/ask?hits={hits}&misses={misses}", timeout=15) as response:
            pid = int(response.read())
        before = self.gets.get(pid, (0, 0))
        self.gets[pid] = (before[0] + hits, before[1] + misses)
        return pid

    def ask_all(self):
        assert until(lambda: self.ask(3, 2) and len(self.gets) == WORKERS)
        for _ in range(20):
            self.ask(5, 1)

    def is_up(self):
        try:
            with urlopen(self.url, timeout=15):
                return True
        except (URLError, ConnectionError):
            return False


@contextmanager
def served(application, environment):
    """``application`` on gunicorn with two workers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "gunicorn", f"--workers={WORKERS}", f"--bind={address}", application]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment}, stderr=subprocess.DEVNULL) as server:
        try:
            site = Site(f"http://{address}")
            assert until(site.is_up, 30)
            yield site
        finally:
            server.terminate()


def run(command, **environment):
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def without_rich(command):
    """``command``, in a Python that has no rich: the module after ``-m`` is run as it would."""
    assert command[:2] == [sys.executable, "-m"]
    code = (
        "import runpy, sys; sys.modules['rich'] = sys.modules['rich.console'] = None; "
        "sys.argv = sys.argv[1:]; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
    )
    return [sys.executable, "-c", code, *command[2:]]


def figures_that(command, is_right, **environment):
    """The JSON that ``command`` prints, once it is right: workers publish every three seconds."""
    found = {}

    def look():
        done = run([*command, "--json"], **environment)
        assert done.returncode == 0, done.stderr
        found.update(json.loads(done.stdout))
        return is_right(found)

    assert until(look, 30), found
    return found


def check_sums(site, command, **environment):
    """``command`` prints, as JSON and as a table, exactly what the workers were asked for."""

    def is_right(document):
        return {each["pid"]: (each["hits"], each["misses"]) for each in workers(document)} == site.gets

    def workers(document):
        return [worker for cache in document["caches"] for worker in cache["workers"]]

    document = figures_that(command, is_right, **environment)
    [cache] = document["caches"]
    total = cache["total"]
    hits, misses = map(sum, zip(*site.gets.values(), strict=True))
    assert (total["hits"], total["misses"], total["requests"]) == (hits, misses, hits + misses)
    assert total["hit_ratio"] == hits / (hits + misses)
    assert total["entries"] == WORKERS
    assert {each["thread"] for each in cache["workers"]} <= {"running", "parked"}
    assert set(total) < set(cache["workers"][0])
    done = run(command, **environment)
    assert done.returncode == 0, done.stderr
    for pid, (of_hits, of_misses) in site.gets.items():
        assert re.search(rf"^\s*{pid} .* {of_hits + of_misses:,} ", done.stdout, re.MULTILINE), done.stdout
    assert re.search(rf"^{cache['name']} .* {hits + misses:,} ", done.stdout, re.MULTILINE), done.stdout
    return document


def check_watching(site, command, **environment):
    """``command --watch`` under a terminal shows what is asked for meanwhile, until Ctrl-C, which is no error."""
    here, there = pty.openpty()
    terminal = {"COLUMNS": "200", "LINES": "60", "TERM": "xterm"}
    with subprocess.Popen(
        [*command, "--watch", "0.3"],
        cwd=ROOT,
        env={**os.environ, **environment, **terminal},
        stdin=there,
        stdout=there,
        stderr=subprocess.PIPE,
        text=True,
    ) as watching:
        os.close(there)
        try:
            before = _read(here, "stampedes")
            pid = site.ask(500, 0)
            expected = rf"{pid}[^\n]* {sum(site.gets[pid]):,} "
            after = _read(here, expected)
            watching.send_signal(signal.SIGINT)
            rest = _read(here, None)
            code = watching.wait(PATIENCE)
        finally:
            watching.kill()
            errors = watching.stderr.read()
            os.close(here)
    assert re.search("stampedes", before), errors
    assert not re.search(expected, before)
    assert re.search(expected, after), errors
    assert (code, errors) == (0, "")
    assert "Traceback" not in rest


def _read(terminal, expected):
    """What is written until it has ``expected`` in it, or, if that is None, until its writer is gone."""
    text = ""
    deadline = time.monotonic() + 3 * PATIENCE
    while time.monotonic() < deadline and not (expected and re.search(expected, text)):
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                text += os.read(terminal, 65536).decode(errors="replace")
            except OSError:
                # So a terminal ends whose other side is closed.
                break
    return text
