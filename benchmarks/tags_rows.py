"""Tags: ``delete_tags`` in a large cache, hits of entries with tags, and the memory that tags take."""

import tracemalloc
from concurrent.futures import Executor
from statistics import median
from time import sleep, thread_time_ns

from benchmarks.report import Row, Section, bounded, by_core, costlier
from benchmarks.timing import Contender, Step, calling, interleaved
from wheelcache import Cache
from wheelcache.core import IMPLEMENTATION

ENTRIES = 1_000_000
TAGS = 1000
DROPS = 50
KEYS = [f"user:{number}:profile" for number in range(200)]
ROUNDS = 100
STEPS = ROUNDS + 2

NO_TAGS = "an entry without tags"


def measure(executor: Executor, step: Step) -> Section:
    microseconds = executor.submit(delete_one_tag).result()
    step()
    first, further = executor.submit(bytes_per_tag).result()
    step()
    rounds = {name: calling(_filled(tags).get) for name, tags in ((NO_TAGS, ()), ("two tags", ("a", "b")))}
    timings = interleaved([Contender(name, round_, lambda: KEYS) for name, round_ in rounds.items()], ROUNDS, step)

    def below(operation: str, ours: float, unit: str, at_most: float) -> Row:
        return bounded(operation, ours, "", None, unit, by_core(compiled=at_most))

    return Section(
        "Tags",
        f"The time of delete_tags is the median of {DROPS} calls, each after the entries of the last one were removed; "
        f"the core is {IMPLEMENTATION}.",
        [
            below(f"delete_tags of one of {TAGS:,} tags over {ENTRIES:,} entries", microseconds, "µs", 20),
            costlier(
                "get, hit, two tags",
                timings["two tags"].median,
                NO_TAGS,
                timings[NO_TAGS].median,
                by_core(compiled=1.25),
            ),
            below("memory of the first tag of an entry", first, "bytes", 64),
            below("memory of each further tag", further, "bytes", 24),
        ],
        {"hits": timings, "delete_tags": microseconds, "bytes": [first, further]},
    )


def delete_one_tag() -> float:
    """Return the microseconds of a call, a second or more after the last one. Run this in a new process."""
    cache = Cache("tags", ttl=3000)
    for number in range(ENTRIES):
        cache.set(f"user:{number}:profile", number, tags=(f"tag {number % TAGS}",))
    took = []
    for number in range(DROPS):
        began = thread_time_ns()
        cache.delete_tags(f"tag {number}")
        took.append(thread_time_ns() - began)
        while len(cache) > ENTRIES - (number + 1) * ENTRIES // TAGS:
            sleep(0.01)
    return median(took) / 1000


def bytes_per_tag() -> tuple[float, float]:
    """Return the bytes of an entry's first tag, and of its second. Run this in a new process."""
    sizes = []
    for tags in ((), ("a",), ("a", "b")):
        tracemalloc.start()
        cache = _filled(tags, 100_000)
        sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        del cache
    return (sizes[1] - sizes[0]) / 100_000, (sizes[2] - sizes[1]) / 100_000


def _filled(tags: tuple[str, ...], entries: int = len(KEYS)) -> Cache:
    cache = Cache("tags", ttl=3000)
    for number in range(entries):
        cache.set(f"user:{number}:profile", number, tags=tags)
    return cache
