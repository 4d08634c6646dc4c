"""Publication: readers find totals, steps and the last minute, even if workers exit or are killed."""

import os
import signal
from dataclasses import replace
from io import StringIO

import pytest

from tests.waiting import THREADS
from tests.watch.processes import run, worker
from tests.watch.published import INTERVAL, Site, counted, look, only, steps_of
from wheelcache import Cache
from wheelcache.core import IMPLEMENTATION
from wheelcache.runtime.clock import SystemClock
from wheelcache.watch import publisher, tidying
from wheelcache.watch.console import CommandFailed, show
from wheelcache.watch.figures import Rate
from wheelcache.watch.publisher import FIRST
from wheelcache.watch.site import Own
from wheelcache.watch.site_commands import figures

# Times of publications.


def test_nothing_is_published_before_the_first_use_and_then_every_three_seconds(make, path, clock):
    cache = make()
    clock.advance(60)
    assert list(path.iterdir()) == []
    cache.set("a", 1)
    clock.advance(FIRST / 2)
    assert list(path.iterdir()) == []
    clock.advance(FIRST)
    for number in range(10):
        clock.advance(INTERVAL)
        assert counted(path) == {"pages": number}
        cache.get("a")


@pytest.mark.parametrize("look_up", [lambda cache: cache.get("a"), lambda cache: cache.get_many(["a"])])
def test_a_worker_that_only_misses_is_listed(make, path, clock, look_up):
    look_up(make())
    clock.advance(2 * FIRST)
    assert (only(path).workers, only(path).stats.misses) == (1, 1)


def test_a_process_that_asks_for_no_entry_is_no_worker(make, path, clock):
    cache = make()
    assert (len(cache), cache.engine.observed.lag) == (0, 0)
    cache.on_removal = print
    cache.memoize()(lambda: 1)
    clock.advance(2 * FIRST)
    assert list(path.iterdir()) == []


def test_all_caches_of_a_process_are_published_together(make, path, clock):
    caches = [make(f"cache {number}") for number in range(5)]
    for cache in caches:
        cache.set("a", 1)
        clock.advance(0.1)
    clock.advance(INTERVAL)
    publications = {each.published for name in counted(path) for each in look(path).workers(name)}
    assert len(publications) == 1
    caches[0].close()
    caches[1].get("a")
    clock.advance(2 * INTERVAL)
    assert counted(path)["cache 1"] == 1


def test_what_is_published_is_what_the_cache_says_of_itself(make, path, clock, monkeypatch):
    # Steps begin at full tens of seconds. A count between two looks at the clock may fall on either side of that.
    monkeypatch.setattr(SystemClock, "time", staticmethod(lambda: 1_000_000_000.0))
    cache = make(max_entries=100)
    cache.set("a", 1)
    for _ in range(200):
        cache.get("a")
        clock.advance(1)
    clock.advance(INTERVAL)
    (found,) = look(path, clock).workers("pages")
    own = cache.engine.observed.observer.stats()
    assert (found.pid, found.core, found.max_entries) == (os.getpid(), IMPLEMENTATION, 100)
    total = only_at(path, clock)
    # The groups of keys are published for all workers together.
    assert (replace(found.stats, groups=own.groups), total.stats.groups) == (own, own.groups)
    assert found.minute == total.minute == Rate(60, 0, 0, None, 60)
    assert found.minute.hit_ratio == found.minute.requests_per_second == 1.0


def only_at(path, clock):
    (found,) = look(path, clock).caches
    return found


@pytest.mark.parametrize("name", ["", "/etc/passwd", "a\0b", "\udc80", "x" * 100_000])
def test_whatever_a_cache_is_called_it_is_found_living_and_gone(make, path, clock, name):
    cache = make(name)
    cache.set("a", 1)
    clock.advance(INTERVAL)
    site = look(path)
    site.ask("clear", name)
    assert [(each.name, each.workers) for each in site.caches] == [(name, 1)]
    clock.advance(INTERVAL)
    assert len(cache) == 0
    cache.close()
    assert [(each.name, each.workers, each.stats.clearings) for each in look(path).caches] == [(name, 0, 1)]


def test_there_are_no_keys_and_no_values_in_what_is_published(make, path, clock):
    def fail():
        raise ValueError("What an exception says is in the events.")

    cache = make(weigher=lambda key, value: 1, max_weight=100)
    cache.set("sesame", "sesame")
    cache.memoize()(lambda sesame: "sesame")("sesame")
    with pytest.raises(ValueError, match="events"):
        cache.get_or_load("sesame too", fail)
    clock.advance(600)
    content = b"".join(file.read_bytes() for file in path.iterdir())
    assert b"What an exception says" in content
    assert b"sesame" not in content


def test_huge_numbers_are_published_as_floats(make, path, clock):
    cache = make(weigher=lambda key, value: value, max_weight=2**62)
    for key in "abc":
        cache.set(key, 2**62)
    clock.advance(INTERVAL)
    (found,) = look(path).caches
    assert (found.stats.weight, found.stats.evicted_weight, found.max_weight) == (2**62, 2**63, 2**62)


def test_an_idle_and_empty_cache_publishes_no_more_and_lives_on(make, path, clock):
    cache = make(ttl=5)
    cache.set("a", 1)
    clock.advance(600)
    (file,) = path.glob("*.sqlite3")
    before = file.stat().st_mtime_ns
    clock.advance(600)
    assert file.stat().st_mtime_ns == before
    assert (only(path).workers, only(path).stats.size) == (1, 0)
    cache.set("a", 1, ttl=1000)
    clock.advance(INTERVAL)
    assert only(path).stats.size == 1


# The figures of processes that have ended.


def test_all_that_was_counted_is_published_at_the_exit_also_by_who_exits_before_the_first_publication(path):
    run(
        """
        caches = [make(name) for name in ("hit", "unused", "closed", "parent's")]
        for cache in caches[::2]:
            cache.set("a", 1)
            cache.get("a")
        caches[2].close()
        caches[3].set("a", 1)
        # This is like a worker that only reads values that were loaded before the fork.
        forked(lambda: caches[3].get("a"))
        """,
        path,
    )
    assert {name: hits for name, hits in counted(path).items() if hits} == {"hit": 1, "closed": 1, "parent's": 1}
    assert {each.workers for each in look(path).caches} == {0}
    assert list(path.glob("*.alive")) == []


def test_a_cache_without_a_living_worker_is_shown_with_its_settings(make, path, clock):
    cache = make(max_entries=7, weigher=None)
    cache.set("a", 1)
    clock.advance(INTERVAL)
    cache.close()
    found = only(path)
    assert (found.workers, found.max_entries, found.lag, found.stats.size, found.stats.puts) == (0, 7, None, 0, 1)


def test_a_cache_that_is_dropped_without_being_closed_is_no_worker_and_leaves_no_descriptor(path):
    # In a process without other caches, whose threads may be using sqlite at that moment.
    assert run(
        """
        before = len(os.listdir("/proc/self/fd"))
        cache = make()
        use(cache, 1)
        del cache
        gc.collect()
        (found,) = look(path).caches
        print(found.workers, found.stats.hits, len(os.listdir("/proc/self/fd")) <= before)
        """,
        path,
    ) == ["0 1 True"]


def test_who_is_killed_is_dead_and_who_is_stopped_lives(path, make, clock):
    with worker(path, hits=7, max_entries=50) as process:
        os.kill(process.pid, signal.SIGSTOP)
        assert (only(path).workers, only(path).stats.size, only(path).max_entries) == (1, 1, 50)
        process.kill()
        process.communicate()
        assert (only(path).workers, only(path).stats.size, counted(path)) == (0, 0, {"pages": 7})
    cache = make("other")
    cache.set("a", 1)
    clock.advance(INTERVAL)
    assert counted(path) == {"other": 0, "pages": 7}
    assert len(list(path.glob("*.alive"))) == 1


def test_the_child_of_a_fork_is_another_worker_that_counts_from_zero_and_leaves_its_parent_alone(path):
    out = run(
        """
        cache = make()
        use(cache, 5)

        def see():
            print(*((each.pid, each.stats.hits) for each in look(path).workers("pages")))

        def work():
            use(cache, 1)
            see()

        def drop():
            globals().pop("cache")
            gc.collect()
            os._exit(0)

        print(os.getpid(), forked(work))
        for child in (lambda: cache.close() or os._exit(0), drop):
            forked(child)
            see()
        print(counted(path))
        """,
        path,
    )
    parent, child = map(int, out[1].split())
    assert out == [f"({parent}, 5) ({child}, 1)", out[1], f"({parent}, 5)", f"({parent}, 5)", "{'pages': 6}"]


# Several directories, readers.


def test_several_directories_are_put_together(make, clock, tmp_path):
    paths = [tmp_path / name for name in ("one", "two")]
    caches = [make("pages", figures_dir=path) for path in paths]
    for cache in caches:
        cache.set("a", 1)
        cache.get("a")
    clock.advance(24)
    site = Site(caches)
    (found,) = site.caches
    assert (found.stats.hits, found.stats.size, len(site.workers("pages"))) == (2, 2, 1)
    assert sum(step.hits for step in steps_of(site, "pages").values()) == 2


def test_whichever_process_answers_what_is_not_published_counts_only_where_nothing_else_is_known(make, clock):
    here, there = make(), make()
    for cache in (here, there):
        cache.set("a", 1)
    here.get("a")
    assert [each.stats.hits for each in Site([here]).caches] == [1]
    for include in (Own.NONE, Own.UNPUBLISHED):
        assert Site([here], include).caches == []
    clock.advance(INTERVAL)
    here.get("a")
    for cache in (here, there):
        (found,) = Site([cache]).caches
        assert (found.stats.hits, found.stats.size) == (1, 2)


def test_many_processes_that_publish_as_fast_as_they_can_lose_nothing_and_readers_see_no_sum_go_down(path):
    assert run(
        """
        pids = []
        for _ in range(4):
            pid = os.fork()
            if pid == 0:
                cache = make()
                cache.set("a", 1)
                for _ in range(100):
                    cache.get("a")
                    clock.advance(3)
                sys.exit()
            pids.append(pid)
        seen = 0
        while pids:
            found = counted(path).get("pages", 0)
            assert found >= seen, (found, seen)
            seen = found
            pid, end = os.waitpid(-1, os.WNOHANG)
            if pid:
                assert end == 0
                pids.remove(pid)
        print(counted(path)["pages"])
        """,
        path,
    ) == ["400"]


def test_names_do_not_pile_up(make, path, clock, monkeypatch):
    monkeypatch.setattr(tidying, "NAMES", 5)
    monkeypatch.setattr(publisher, "TIDY_EVERY", 0.0)
    for number in range(8):
        cache = make(f"name {number}")
        cache.set("a", 1)
        clock.advance(INTERVAL)
        cache.close()
    assert len(counted(path)) <= 6
    assert "name 7" in counted(path)


def test_threads_that_publish_at_the_same_time_count_nothing_twice(make, path, together):
    cache = make()
    cache.set("a", 1)

    def work(number):
        for _ in range(10):
            cache.get("a")
            cache.engine.observed.observer.publication.publisher.publish(60.0)

    together(work)
    assert counted(path) == {"pages": 10 * THREADS}


def test_a_publication_of_the_wheel_thread_at_the_exit_counts_nothing_twice(path):
    assert run(
        """
        from wheelcache.watch.site_file import SiteFile

        cache = make()
        use(cache, 1)
        cache.get("a")
        ending = cache.engine.observed.observer.publication.publisher
        write = SiteFile.write

        def write_and_be_overtaken(*args, **options):
            result = write(*args, **options)
            SiteFile.write = write
            thread = threading.Thread(target=ending.publish)
            thread.start()
            thread.join()
            return result

        SiteFile.write = write_and_be_overtaken
        ending.end()
        print(counted(path))
        """,
        path,
    ) == ["{'pages': 2}"]


def test_the_last_minute_of_all_workers_is_the_sum_of_those_that_are_listed(another_worker, path):
    def use(hits):
        def look_up(cache, clock):
            cache.set("k", 1)
            for _ in range(hits):
                cache.get("k")
            clock.advance(10)

        return look_up

    for pid, hits in ((4242, 5), (4243, 7)):
        another_worker("pages", pid, use=use(hits))
    (cache,) = figures([Cache("looks only", figures_dir=path)]).document["caches"]
    assert [each["requests_per_second"] for each in cache["workers"]] == [0.5, 0.7]
    assert cache["total"]["requests_per_second"] == 1.2


def test_without_a_worker_the_last_figures_are_printed_and_the_command_fails(make, path, clock):
    cache = make()
    cache.set("a", 1)
    clock.advance(INTERVAL)
    cache.close()
    out = StringIO()
    with pytest.raises(CommandFailed, match="No worker of this site publishes figures"):
        show(figures([Cache("looks only", figures_dir=path)]), out, styled=False)
    assert "pages" in out.getvalue()
