"""Thousands of entries, and the errors that a core in C can make with keys and times."""

import itertools
import math
import os
import random
import sys
import time
from array import array
from decimal import Decimal

import pytest

from tests.core.cores import CORES, EXPIRED, advance_all, compiled, drain_all, labels
from wheelcache.core.contract import CHANGED, MISSING, STORED, WAKE

# ``make sanitize`` takes more.
FUZZED_STEPS = int(os.environ.get("FUZZED_STEPS", 3000))


def fastest(core_class, keys):
    """Return the minimum of the CPU seconds that setting and getting ``keys`` takes."""
    seconds = []
    for _ in range(3):
        core = core_class()
        started = time.thread_time()
        for key in keys:
            core.set(key, 1, None)
        for key in keys:
            core.find(key)
        seconds.append(time.thread_time() - started)
    return min(seconds)


class Custom:
    """A key that is compared by its own Python code."""

    def __hash__(self):
        return 7

    def __eq__(self, other):
        return self is other


def step_of(chance, clock, trust=None, max_weight=None, **_):
    """A random step, as a function of a core and a list of removals. Both implementations agree on its result."""
    key = chance.choice((chance.randrange(6000), f"key {chance.randrange(400)}", (chance.randrange(50), "pair")))
    number, weight = chance.randrange(300), chance.randrange(30) if max_weight else 0
    value, ttl = chance.choice((key, [key], "x" * 50)), chance.choice((None, 1, 30, 500.5, 100_000))
    tags = tuple(f"tag {each}" for each in chance.sample(range(30), chance.choice((0, 0, 0, 1, 2))))
    if number < 9:
        clock.now += number**2 / 2
    if trust is not None and number == 9:
        trust[0] += 1
    steps = {
        lambda core, removed: removed.extend(sorted(done(core, advance_all), key=repr)): 1,
        lambda core, removed: [core.delete(number * 20 + each, removed=removed) for each in range(200)]: 1,
        lambda core, removed: core.peek(key, use=True): 1,
        lambda core, removed: core.evict(number, removed, size=max(0, len(core) - number)): 1,
        lambda core, removed: core.drop_tag(f"tag {number % 30}"): 0.1,
        lambda core, removed: sorted(done(core, drain_all), key=repr): 0.1,
        lambda core, removed: (core.clear(), sorted(done(core, drain_all), key=repr)): 0.02,
        lambda core, removed: core.touch(key, 20) & STORED: 3,
        lambda core, removed: core.delete(key, MISSING, removed=removed): 9,
        lambda core, removed: core.find(key, MISSING): 10,
        lambda core, removed: (
            core.set(key, value, ttl, 7.0 * (number % 4 == 0), weight=weight, removed=removed, labels=labels(tags))
            & ~WAKE
        ): 14,
    }
    return chance.choices([*steps], steps.values())[0]


def done(core, work):
    removed = []
    work(core, removed)
    return removed


@compiled
@pytest.mark.parametrize("bounds", [{}, {"max_entries": 700}, {"max_weight": 30_000}, {"trust": array("Q", [1])}])
@pytest.mark.timeout(900)
def test_thousands_of_entries_that_come_and_go_are_those_of_a_simple_map(make, clock, bounds):
    """Blocks fill and empty, buckets split and join, entries move: none of which the model sees with a few keys."""
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    core, model = make(**bounds), CORES["python"](clock=clock, **bounds)
    there, expected = [], []
    for number in range(FUZZED_STEPS):
        step = step_of(chance, clock, **bounds)
        assert step(core, there) == step(model, expected), seed
        assert there == expected, seed
        assert (len(core), core.weight) == (len(model), model.weight), seed
        if number % 500 == 0:
            assert core.keys() == model.keys(), seed
            assert core.counts() == model.counts(), seed
            there.clear()
            expected.clear()


def test_entries_that_move_when_memory_shrinks_keep_what_they_have_and_leave_on_time(make, clock):
    core, removed = make(max_weight=10**9), []
    keys = random.sample(range(9000), 6000)
    for key in keys:
        tags = (f"tag {key % 5}",) if key % 2 else ()
        core.set(key, [key], 10, grace=key % 3, weight=key, labels=labels(tags))
    for key in keys[400:]:
        assert core.delete(key) == [key]
    for record in core.scan().step(6000):
        key = record.key
        tags = (f"tag {key % 5}",) if key % 2 else ()
        assert record[:5] == (key, [key], (10, 10 + key % 3, True), key, tags)
    assert core.keys() == keys[:400]
    # The neighbors of these in the slots of the wheel have moved.
    for key in keys[:200]:
        core.delete(key)
    clock.now = 13
    advance_all(core, removed)
    assert sorted(removed) == [(key, [key], EXPIRED) for key in sorted(keys[200:400])]
    assert (len(core), core.weight, core.next_due) == (0, 0, math.inf)


class TestKeys:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("key", type("Name", (str,), {})("key")),
            (1, 1.0),
            (1, True),
            ((1, "a"), (1.0, "a")),
            (b"key", type("Bytes", (bytes,), {})(b"key")),
            (2**61, 2.0**61),
            ("\u20ac", "".join(["\u20ac"])),
        ],
    )
    def test_equal_keys_of_different_types_are_one(self, make, one, other):
        core = make()
        watch = core.watch(one)
        core.set(one, 1, 10)
        core.set(other, 2, 10)
        assert (core.find(one), core.find(other), len(core)) == (2, 2, 1)
        assert core.fill(other, 3, 10, watch) == CHANGED
        assert core.delete(other) == 2
        assert core.find(one) is None

    def test_keys_of_one_hash_are_told_apart(self, make):
        keys = [7 + number * sys.hash_info.modulus for number in range(100)]
        keys += [(key, "pair") for key in keys]
        assert len({*map(hash, keys)}) == 2
        core = make()
        watches = [core.watch(key) for key in keys]
        for number, key in enumerate(keys[1:], 1):
            core.set(key, number, 10)
        assert [watch.broken for watch in watches] == [False] + [True] * 199
        assert [core.find(key) for key in keys] == [None, *range(1, 200)]
        for number in range(2, 200, 2):
            assert core.delete(keys[number]) == number
        assert len(core) == 100

    @compiled
    @pytest.mark.parametrize("key", [Decimal(1), (1, (Decimal(1),)), frozenset([Decimal(1)]), Custom(), (Custom(), 1)])
    def test_keys_that_python_code_compares_are_refused_by_every_call(self, make, key):
        """Such code could change the core within a step."""
        core = make()
        core.set("key", 1, 10)
        for call in (
            *(core.find, core.delete, core.peek, core.times, core.watch),
            lambda key: core.touch(key, 10),
            lambda key: core.set(key, 2, 10),
        ):
            with pytest.raises(TypeError, match="compared by C code alone"):
                call(key)
        assert core.keys() == ["key"]

    @pytest.mark.parametrize("key", [[], ([],)])
    def test_a_key_that_cannot_be_hashed_is_named(self, make, key):
        core = make()
        for call in (core.find, core.delete, lambda key: core.set(key, 1, 10)):
            with pytest.raises(TypeError, match="unhashable type: 'list'"):
                call(key)

    @pytest.mark.alone
    @compiled
    def test_integers_that_a_visitor_chooses_are_as_fast_as_others(self, core_class):
        """The bucket of a key must not follow from the key: these were all in one for a multiplier that is known."""
        inverse = pow(0x9E3779B97F4A7C15, -1, 2**64)
        candidates = (((high << 56 | low) * inverse) % 2**64 for low in itertools.count() for high in range(256))
        chosen = list(itertools.islice((key for key in candidates if key < sys.hash_info.modulus), 20_000))
        others = random.sample(range(sys.hash_info.modulus), 20_000)
        assert fastest(core_class, chosen) < 5 * fastest(core_class, others)


class TestArguments:
    def test_a_bound_that_no_memory_could_reach_is_none(self, make):
        core = make(max_entries=2**70)
        core.set("key", 1, None)
        assert core.find("key") == 1

    def test_a_ttl_that_is_not_a_number_is_refused(self, make):
        core = make()
        core.set("key", 1, 10)
        for call in (
            lambda: core.set("key", 2, math.nan),
            lambda: core.set("key", 2, math.nan, 5.0, True),
            lambda: core.touch("key", math.nan),
        ):
            with pytest.raises(ValueError, match="not nan"):
                call()
        assert (core.find("key"), core.times("key").fresh_until) == (1, 10)


class TestTime:
    def test_an_idle_wheel_forgets_the_slot_that_it_was_going_through(self, make, clock):
        core = make(interval=1)
        for number in range(10):
            core.set(number, number, 70)
        clock.now = 65
        core.advance(3)
        for number in range(10):
            core.delete(number)
        # Later, but due in a slot of the same place as theirs.
        clock.now = 64 * 64 + 10
        core.set("key", 1, 64)
        clock.now += 64
        core.advance()
        assert len(core) == 0

    @pytest.mark.parametrize("ttl", [0.004, 0.03])
    def test_the_system_clock_decides_exactly(self, core_class, ttl):
        core = core_class()
        core.set("key", 1, ttl)
        until = core.times("key").fresh_until
        is_found = True
        while is_found:
            before = core.now()
            is_found = core.find("key") is not None
            after = core.now()
            assert before < until if is_found else after >= until

    def test_forked_children_draw_other_jitters(self, make):
        core = make(jitter=0.5)
        reader, writer = os.pipe()
        for _ in range(3):
            core.before_fork()
            if (child := os.fork()) == 0:
                core.after_fork(in_child=True)
                core.set("key", 1, 1000)
                os.write(writer, f"{core.times('key').fresh_until}\n".encode())
                os._exit(0)
            core.after_fork(in_child=False)
            os.waitpid(child, 0)
        with os.fdopen(writer), os.fdopen(reader) as drawn:
            assert len({drawn.readline() for _ in range(3)}) == 3
