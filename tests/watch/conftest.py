import json
from argparse import ArgumentParser
from io import StringIO
from types import SimpleNamespace

import pytest

from tests.watch.published import INTERVAL
from wheelcache import Cache, ManualClock
from wheelcache.watch import inquiries, publisher
from wheelcache.watch.command_line import Framework, add_commands, run
from wheelcache.watch.console import CommandFailed


@pytest.fixture
def path(tmp_path):
    return tmp_path / "figures"


@pytest.fixture
def make(path, clock, closed):
    """Make a cache that publishes in ``path`` and runs on the test's clock."""
    given = {"clock": clock, "jitter": 0, "figures_dir": path}
    return lambda name="pages", **options: closed(Cache(name, **{**given, **options}))


@pytest.fixture
def worker(make, clock):
    """Make a cache that is published."""

    def make_worker(entries, name="pages", **options):
        cache = make(name, **options)
        for key, (value, ttl, *tags) in entries.items():
            cache.set(key, value, ttl, tags=tags)
        clock.advance(INTERVAL)
        return cache

    return make_worker


@pytest.fixture
def command(path):
    """Run a command: ``command("get", "key", "--show-value")``. Return its output, and the reason of its failure."""
    framework = Framework(lambda: [Cache("looks only", figures_dir=path)], lambda name: name, None)

    def run_command(*arguments):
        parser, out, reason = ArgumentParser(), StringIO(), None
        add_commands(parser)
        try:
            run(vars(parser.parse_args(arguments)), framework, out)
        except CommandFailed as error:
            reason = str(error)
        shown = out.getvalue()
        return json.loads(shown) if shown and "--json" in arguments else shown, reason

    return run_command


@pytest.fixture
def answering(monkeypatch, clock):
    """Let the workers publish, and so answer, while a command waits."""
    time = SimpleNamespace(sleep=lambda seconds: clock.advance(INTERVAL), thread_time=lambda: 0.0)
    monkeypatch.setattr(inquiries, "time", time)


@pytest.fixture
def caches():
    """The list of caches that an exporter receives."""
    return []


@pytest.fixture
def cache(make, clock):
    made = make()
    made.set("a", 1)
    return made


@pytest.fixture
def make_exported(caches, clock, closed):
    """Make a cache and add it to ``caches``."""

    def make_cache(name="pages", **options):
        caches.append(closed(Cache(name, **{"clock": clock, "jitter": 0, **options})))
        return caches[-1]

    return make_cache


@pytest.fixture
def elsewhere(make, monkeypatch):
    """Make a cache that publishes as if it were in a process of its own, which lives until the test ends."""

    def make_elsewhere(name="pages", **options):
        with monkeypatch.context() as patch:
            # The publisher is that of a process.
            patch.setattr(publisher, "_publishers", {})
            return make(name, **options)

    return make_elsewhere


@pytest.fixture
def another_worker(elsewhere):
    """Publish a cache of another process, with this process identifier."""

    def publish(name, pid, hits=0, entries=0, use=None, **options):
        clock = ManualClock()
        cache = elsewhere(name, clock=clock, **options)
        for key in range(entries):
            cache.set(key, "value")
        for _ in range(hits):
            cache.get(0)
        if use is not None:
            use(cache, clock)
        publication = cache.engine.observed.observer.publication
        publication.has_begun = True
        publication.run_now()
        process = publication.publisher.process
        publication.publisher.file.write(
            lambda db: db.execute("UPDATE processes SET pid = ? WHERE id = ?", (pid, process))
        )

    return publish
