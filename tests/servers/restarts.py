"""For the tests of restarts: sites that are filled, stopped and started again."""

from contextlib import contextmanager
from functools import partial

from tests.servers.process import Server, running
from tests.servers.sites import command_of, environment, workers_of
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

    def everywhere(self, path):
        """Ask until every worker has answered; their numbers."""
        pids = set()
        assert until(lambda: pids.add(self(path)["pid"]) or len(pids) == self.workers)
        return pids

    def pids(self):
        return self.everywhere("pid")

    def fill(self):
        """Let every worker set all keys."""
        for key in KEYS:
            self.everywhere(f"set/{key}?value=warm")

    def hits(self):
        """The ratio of the keys that are there, whichever worker is asked."""
        self.pids()
        return sum(self(f"get/{key}")["value"] == ["warm"] for key in KEYS * 3) / len(KEYS * 3)


class Place:
    """The directories of a site's snapshots and figures, for any server."""

    def __init__(self, folder):
        self.folder = folder
        self.snapshots = folder / "snapshots"
        self.figures = folder / "figures"
        self.log = folder / "log"

    def given(self, **options):
        """The environment of the site and of its command."""
        directories = {"snapshot": str(self.snapshots), "figures_dir": str(self.figures)}
        return {"SITE_STAMPS": str(self.folder), **environment(log_interval=None, **{**directories, **options})}

    @contextmanager
    def serve(self, framework, server, **options):
        make = partial(Site, workers=workers_of(server))
        with running(command_of(framework, server), self.log, make=make, **self.given(**options)) as site:
            yield site
        assert "Traceback" not in self.log.read_text()
