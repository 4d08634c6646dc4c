"""For the tests of restarts: sites that are filled, stopped and started again, and the command that looks at them."""

import json
from functools import partial
from pathlib import Path

from tests.servers.process import Server, running
from tests.servers.sites import run
from tests.waiting import until

KEYS = [f"key{number}" for number in range(20)]


class Site(Server):
    """
    Attributes:
        workers: how many processes answer.
    """

    def __init__(self, process, port, workers):
        super().__init__(process, port)
        self.workers = workers

    def pids(self):
        """Of all workers."""
        found = set()
        assert until(lambda: found.add(self("pid")["pid"]) or len(found) == self.workers)
        return found

    def fill(self):
        """Have every worker set all keys."""
        for key in KEYS:
            done = set()

            def all_have_it(key=key, done=done):
                done.add(self(f"set/{key}?value=warm")["pid"])
                return len(done) == self.workers

            assert until(all_have_it)

    def hits(self):
        """The ratio of the keys that are there, whichever worker is asked."""
        self.pids()
        return sum(self(f"get/{key}")["value"] == ["warm"] for key in KEYS * 3) / len(KEYS * 3)


def served(command, log, workers, **environment):
    return running(command, log, make=partial(Site, workers=workers), **environment)


def check_commands(server, command, directory, **environment):
    """``command`` save, inspect and load, with the workers of a server that has been filled."""
    pids = server.pids()
    before = inspected(command, **environment)
    done = run([*command, "save"], **environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f": {len(KEYS)} entries in {directory}/") == server.workers
    found = inspected(command, **environment)
    assert len(found) == server.workers
    assert not {each["saved_at"] for each in found} & {each["saved_at"] for each in before}
    for each in found:
        assert (each["state"], each["reason"], each["entries"], each["set_aside"]) == ("whole", None, len(KEYS), False)
        assert each["bytes"] == Path(each["file"]).stat().st_size
    files = {path: path.stat().st_mtime_ns for path in directory.iterdir()}
    whole = Path(found[0]["file"]).read_bytes()
    damage(Path(found[0]["file"]))
    done = run([*command, "inspect"], **environment)
    assert done.returncode == 0, done.stderr
    assert Path(found[0]["file"]).name in done.stdout
    assert "damaged: it is damaged after" in done.stdout
    assert "whole" in done.stdout
    # None of these commands loaded, saved or renamed anything itself.
    assert set(directory.iterdir()) == set(files), (sorted(directory.iterdir()), sorted(files))
    assert {path: path.stat().st_mtime_ns for path in files if path != Path(found[0]["file"])} == {
        path: time for path, time in files.items() if path != Path(found[0]["file"])
    }
    assert server.pids() == pids
    Path(found[0]["file"]).write_bytes(whole)
    done = run([*command, "load"], **environment)
    assert done.returncode == 0, done.stderr
    assert found[0]["file"] in done.stdout
    for pid in pids:
        assert str(pid) in done.stdout


def wait_until_published(server, directory):
    """Until all workers have shown that they are there: before that, no command can ask them for anything."""
    assert until(lambda: len(list(directory.glob("*.worker"))) == server.workers, 30)


def inspected(command, **environment):
    """The snapshots of the one cache there is."""
    done = run([*command, "inspect", "--json"], **environment)
    assert done.returncode == 0, done.stderr
    [cache] = json.loads(done.stdout)["caches"]
    return cache["snapshots"]


def damage(path):
    """Change a byte near the end."""
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
