"""Workers with separate entries that miss values which another worker has: a problem that a HostCache prevents."""

from collections import Counter

import pytest

from tests.watch.published import look
from wheelcache import Cache
from wheelcache.engine.observed import SharedState
from wheelcache.runtime.request_scope import forget_misses
from wheelcache.watch.key_samples import NONE, PUBLISH_EVERY, WINDOW, Misses
from wheelcache.watch.problems import problems_of
from wheelcache.watch.separate_entries import worst_of
from wheelcache.watch.site import Own, Site

STEP = 3.0


def go_on(clock):
    for _ in range(6):
        clock.advance(STEP)


@pytest.fixture
def workers(elsewhere):
    """Make caches of one name in several workers."""
    return lambda number, **options: [elsewhere(**options) for _ in range(number)]


@pytest.fixture
def problems(path, clock):
    return lambda: [str(each) for each in problems_of(look(path, clock), ())]


def miss(cache, key):
    """Look up a key in a request that does not set it."""
    found = cache.get(key)
    cache.engine.misses().note(key)
    forget_misses()
    assert found is None


MISSED = "Cache 'pages': {} miss a value that another worker has. Set its backend to HostCache."


def test_values_that_only_another_worker_has_are_a_problem_that_names_their_group(workers, problems, clock):
    one, other = workers(2)
    for number in range(30):
        one.set(f"token:{number}", number)
        other.set(f"page:{number}", number)
        other.get(f"page:{number}")
    go_on(clock)
    for number in range(30):
        miss(other, f"token:{number}")
        one.get(f"token:{number}")
    go_on(clock)
    # The core in Python has one group.
    group = " of 'token'" if one.stats().groups.keys() > {""} else ""
    assert problems() == [MISSED.format(f"50% of the look-ups{group}")]
    # Their count ends with the next two windows.
    for _ in range(2):
        clock.advance(WINDOW)
        one.get("page:0")
        go_on(clock)
    assert problems() == []


@pytest.mark.parametrize(("ttl", "is_missed"), [(PUBLISH_EVERY, False), (PUBLISH_EVERY + 1, True)])
def test_a_value_that_ends_before_the_next_publication_is_not_missed(workers, problems, clock, ttl, is_missed):
    def publish(cache):
        observer = cache.engine.observed.observer
        observer.samples.run()
        observer.samples._publish_at = 0.0
        observer.publication.run_now()

    one, other = workers(2)
    for number in range(30):
        other.set(f"page:{number}", number)
        one.get("page:unknown")
    go_on(clock)
    for number in range(30):
        one.set(f"token:{number}", number, ttl)
    publish(one)
    for number in range(30):
        miss(other, f"token:{number}")
    publish(other)
    assert bool(problems()) == is_missed


def misses(avoidable, lookups, misses=None, **others):
    """Return the misses of a cache, of whose misses as many are sampled."""
    counts = {"page": avoidable, **{name: number for name, (number, _) in others.items()}}
    total = {"page": lookups, **{name: number for name, (_, number) in others.items()}}
    return Misses(Counter(counts), sum(counts.values()), misses or sum(counts.values()), Counter(total))


@pytest.mark.parametrize(
    ("found", "worst"),
    [
        (misses(20, 200), ("page", 0.1)),
        (misses(20, 201), None),
        (misses(19, 100), None),
        # A tenth of the misses was sampled.
        (misses(20, 2000, 200), ("page", 0.1)),
        (misses(20, 100, 200), ("page", 1.0)),
        (misses(20, 200, user=(30, 100)), ("user", 0.3)),
        (NONE, None),
    ],
)
def test_the_group_that_misses_a_tenth_of_its_look_ups_and_most_is_the_worst(found, worst):
    assert worst_of(found) == worst


@pytest.mark.parametrize("number", [1, 2])
def test_keys_that_no_worker_has_are_none(workers, problems, clock, number):
    for cache in workers(number):
        cache.set("page:1", 1)
        for _ in range(50):
            miss(cache, "page:unknown")
    go_on(clock)
    assert problems() == []


def test_workers_publish_no_keys_and_each_database_has_other_hashes(workers, path, clock):
    found = []
    for folder in (path, path.with_name("other")):
        (cache,) = workers(1, figures_dir=folder)
        cache.set("session:xyzzy", 1)
        go_on(clock)
        (file,) = look(folder).files
        query = "SELECT held FROM key_samples WHERE process != 0"
        found.append(file.read(lambda db: db.execute(query).fetchone(), tuple))  # noqa: B023
        assert b"xyzzy" not in file.path.read_bytes()
    assert found[0] != found[1]


def test_all_workers_of_a_database_have_the_same_hashes_also_after_one_has_tidied_it(workers, path, clock):
    found = set()
    for _ in range(2):
        # The first publication of a worker tidies.
        (cache,) = workers(1)
        cache.set("page:1", 1)
        go_on(clock)
        (file,) = look(path).files
        query = "SELECT held FROM key_samples WHERE process = 0"
        found.add(file.read(lambda db: db.execute(query).fetchone(), tuple))  # noqa: B023
    assert len(found) == 1


def test_state_that_workers_must_share_is_a_problem_from_two_workers_on(workers, path, clock):
    looking = Cache("pages", clock=clock, figures_dir=path)
    looking.engine.observed.setting = "CACHE_TYPE"
    looking.engine.observed.shared_state.append(SharedState("Sessions are in", "a visitor is logged out"))

    def found():
        return [str(each) for each in problems_of(Site([looking], Own.NONE), ())]

    for each in workers(1):
        each.set("a", 1)
    go_on(clock)
    assert found() == []
    for each in workers(1):
        each.set("a", 1)
    go_on(clock)
    (problem,) = found()
    assert problem == (
        "Cache 'pages': Sessions are in it, and its 2 workers do not share it: a visitor is logged out. "
        "Set CACHE_TYPE to HostCache."
    )
