"""What there is to see of the caches of a site: this process as it is now, the others as they published."""

import io
import os
import time

import pytest

from tests.observability.behind import use_store
from tests.observability.processes import run
from wheelcache import Cache
from wheelcache.observability.collect import collect, directories_of, note_reset, since_reset
from wheelcache.observability.console import document, show
from wheelcache.observability.figures_directory import FiguresDirectory
from wheelcache.stats import Stats


@pytest.fixture
def path(tmp_path):
    return tmp_path / "figures"


@pytest.fixture
def make(clock, path):
    def make_cache(name="pages", figures_dir=path, hits=0):
        cache = Cache(name, clock=clock, figures_dir=figures_dir)
        cache.set("a", 1)
        for _ in range(hits):
            cache.get("a")
        return cache

    return make_cache


def hits(figures):
    return {each.name: each.stats.hits for each in figures}


def test_without_a_directory_there_are_the_caches_of_this_process(make):
    assert collect([]) == []
    found = collect([make("b", None, 2), make("a", None, 1), make("b", None, 3)])
    assert [each.name for each in found] == ["a", "b"]
    assert hits(found) == {"a": 1, "b": 5}
    assert all(worker.pid == os.getpid() for each in found for worker in each.workers)


def test_whichever_process_answers_the_figures_are_those_that_were_published(make, clock):
    here, there = make(hits=1), make(hits=10)
    assert hits(collect([here])) == {"pages": 1}
    clock.advance(3)
    for cache in (here, there):
        cache.get("a")
        (found,) = collect([cache])
        assert found.stats.hits == 11
        assert len(found.workers) == 2
    clock.advance(3)
    assert hits(collect([here])) == {"pages": 13}


def test_the_terminal_has_a_line_on_the_store_behind_a_near_cache_and_the_document_has_its_figures(make, clock):
    caches = [make(), make("copies")]
    use_store(caches[1], clock)
    clock.advance(3)
    plain, copies = sorted(document(caches)["caches"], key=lambda cache: cache["name"] == "copies")
    assert plain["total"]["store"] is None
    assert (
        copies["total"]["store"]
        == copies["workers"][0]["store"]
        == {
            "reads": 2,
            "read_ms": pytest.approx(162.5, abs=0.01),
            "writes": 4,
            "write_ms": pytest.approx(1062.5, abs=0.01),
            "errors": 3,
            "refused": 3,
            "open_breakers": 1,
        }
    )
    out = io.StringIO()
    show(caches, out)
    shown = " ".join(out.getvalue().split())
    assert shown.count("The store behind") == 1
    assert (
        "The store behind copies: 2 reads, 162.5 ms each; 4 writes, 1,062.5 ms each; 3 errors; 3 refused; "
        "left alone by 1 of its workers, because it fails."
    ) in shown


def test_who_only_looks_sees_what_was_published(make, clock):
    caches = [make(hits=1), make("other", hits=2)]
    assert collect(caches, with_own=False) == []
    clock.advance(3)
    caches[0].get("a")
    looks_only = [make("never written to")]
    assert hits(collect(looks_only, with_own=False)) == {"pages": 1, "other": 2}


def test_exited_workers_are_told_beside_those_who_live(make, clock):
    here, gone, alone = make(hits=1), make(hits=10), make("alone", hits=5)
    clock.advance(3)
    gone.close()
    (only,) = [each for each in collect([here, alone]) if each.name == "pages"]
    assert (only.stats.hits, only.exited_workers) == (1, Stats(hits=10, puts=1))
    alone.close()
    # Of a cache that no process has any more, there is still what it counted: what is summed up never goes down.
    found = {each.name: each for each in collect([here])}
    assert (found["alone"].workers, found["alone"].exited_workers.hits) == ((), 5)


def test_several_directories_are_put_together(make, clock, tmp_path):
    paths = [tmp_path / name for name in ("one", "two")]
    caches = [make("pages", path, 1) for path in paths] + [make("pages", paths[0], 1)]
    others = [make("pages", path, 10) for path in paths]
    clock.advance(3)
    (found,) = collect(caches)
    assert found.stats.hits == 23
    assert len(found.workers) == 5
    others[0].close()
    others[1].close()
    (found,) = collect(caches)
    assert (found.stats.hits, found.exited_workers.hits) == (3, 20)
    assert sorted(each.path for each in directories_of(caches)) == paths


def test_from_a_reset_on_figures_are_of_what_comes_after_also_in_other_processes(make, clock, path):
    here, there = make(hits=1), make(hits=10)
    clock.advance(3)
    assert since_reset(collect([here]), [here])[0] is None
    before = time.time()
    FiguresDirectory(path).reset(collect([here]))
    late = make(hits=100)
    here.get("a")
    there.get("a")
    clock.advance(3)
    at, figures = since_reset(collect([here]), [here])
    assert before <= at <= time.time()
    assert hits(figures) == {"pages": 1 + 1 + 100}
    assert figures[0].stats.size == 3
    assert late.stats().hits == 100


def test_a_reset_counts_neither_twice_nor_below_zero_when_workers_exit_after_it(make, clock, path):
    gone, before, after = make(hits=3), make(hits=5), make(hits=7)
    clock.advance(3)
    gone.close()
    FiguresDirectory(path).reset(collect([before]))
    for cache, more in ((before, 10), (after, 20)):
        for _ in range(more):
            cache.get("a")
    clock.advance(3)
    looks = [make("other")]
    for cache in (before, after):
        at, (_, found) = since_reset(collect(looks), looks)
        assert at is not None
        assert (found.total.hits, found.total.size) == (30, len(found.workers))
        cache.close()
    late = [make(hits=1)]
    clock.advance(3)
    assert since_reset(collect(late), late)[1][-1].total.hits == 31


def test_a_reset_of_one_cache_leaves_the_figures_of_the_others_and_a_later_one_of_all_counts_for_all(make, clock):
    here, other = make(hits=3), make("other", hits=5)
    clock.advance(3)
    since = {}
    for name, counted in (("pages", {"pages": 0, "other": 5}), (None, {"pages": 0, "other": 0}), ("other", {})):
        here.get("a")
        clock.advance(3)
        note_reset([here, other], name)
        at, figures = since_reset(collect([here]), [here])
        assert hits(figures) == {"pages": 1, "other": 0} | counted
        since[name] = [each.reset_at for each in figures]
        assert (at is None) == (name == "pages")
    assert since["pages"][0] is None
    assert since[None][0] == since[None][1] == at
    assert since["other"][1] == at < since["other"][0]


def test_a_directory_that_is_gone_costs_what_the_others_published_only(make, clock, path):
    here, other = make(hits=1), make(hits=10)
    clock.advance(3)
    for file in path.iterdir():
        file.unlink()
    path.rmdir()
    assert hits(collect([here])) == {"pages": 1}
    assert since_reset(collect([here]), [here])[0] is None
    clock.advance(3)
    assert hits(collect([here])) == {"pages": 11}
    other.close()


def test_after_a_fork_the_child_is_another_worker(make, path):
    cache = make(hits=5)
    assert cache.figures().stats.hits == 5
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        cache.get("a")
        figures = cache.figures()
        os.write(write, f"{figures.stats.hits} {figures.worker} {len(figures.samples)}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    counted, worker, samples = os.read(read, 1000).decode().split()
    os.close(read)
    os.close(write)
    assert (counted, samples) == ("1", "0")
    assert worker.startswith(f"{pid}-")
    assert cache.figures().worker.startswith(f"{os.getpid()}-")


def test_started_is_when_the_process_was_and_in_a_child_when_it_was_forked(path):
    out = run(
        """
        import time
        from wheelcache.runtime.clock import SystemClock
        time.sleep(0.6)
        late = Cache("late")
        parent, made = late.figures().started, SystemClock.time()
        if (pid := os.fork()) == 0:
            print(made - parent >= 0.5, late.figures().started >= made - 0.1, flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        """,
        path,
    )
    assert out == ["True True"]
