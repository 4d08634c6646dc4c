"""The comparison of the time before and after a release: which changes are real, and which are a problem."""

from datetime import datetime
from types import SimpleNamespace

import pytest

from wheelcache.engine.stats import MISSES, Stats
from wheelcache.runtime.clock import SystemClock
from wheelcache.watch.comparison import Change, Side, changes_between, compare, differ, sentence_of, worse_groups
from wheelcache.watch.console import date_of
from wheelcache.watch.event_log import CLEARED, Event
from wheelcache.watch.releases import Release
from wheelcache.watch.rows import NO_GROUP, group_of
from wheelcache.watch.site import Site
from wheelcache.watch.spans import Span

MARK = 1_000_000_800
"""The time of the release: the start of a minute."""

HOUR, DAY = 3600, 86_400


def row(hits, misses, cause="deleted"):
    """Return the counts of a group whose misses have one cause."""
    return (hits, *NO_GROUP[1 : -len(MISSES)], *(misses if each == cause else 0 for each in MISSES))


class PlainSite:
    """A site with one cache, in the form that a comparison reads.

    Args:
        after: the end of its figures, in seconds after the release.
        old, new: the counts of its groups before and after the release.
        levels: the numbers of entries in the steps after the release; the last one stays.
        restarts: whether workers were started with the release.
    """

    def __init__(
        self, old=None, new=None, *, after=600, levels=(1000,), restarts=True, marks=(MARK,), events=(), shared=False
    ):
        self.edge = MARK + after
        self.time = self.edge + 4.0
        self.figures = SimpleNamespace(name="pages", since=MARK - DAY + after, is_shared=shared)
        self.groups = old or {}, new or {}
        self.read = []
        self._marks, self._events, self._levels, self._restarts = marks, events, levels, restarts

    def releases(self):
        return [Release(float(at), f"r{number}") for number, at in enumerate(self._marks)]

    def events(self, most):
        return list(self._events)

    def span(self, since, until=None):
        return Span(since, self.edge if until is None else min(until, self.edge), 10)

    def within(self, figures, span):
        self.read.append(span)
        groups = self.groups[span.since >= MARK]
        hits, misses = (
            sum(each[0] for each in groups.values()),
            sum(sum(each[-len(MISSES) :]) for each in groups.values()),
        )
        return SimpleNamespace(groups=groups, steps=self._steps, total=lambda: Stats(hits=hits, misses=misses))

    def _steps(self, span):
        def step(start):
            number = (start - MARK) // 10
            entries = 1000 if number < 0 else self._levels[min(number, len(self._levels) - 1)]
            return SimpleNamespace(entries=entries, started=int(self._restarts and number == 0), clearings=0)

        return {start: step(start) for start in range(span.since, span.until, 10)}

    def worse(self):
        return [each.name for each in worse_groups(self, self.figures)]

    def compared(self, at=MARK):
        return compare(self, self.figures, Release(float(at), "r0"))


# Chance.


@pytest.mark.parametrize(
    ("old", "new", "compared", "is_real"),
    [
        # Of at least 60 look-ups on each side.
        ((0, 60), (30, 60), 1, True),
        ((0, 59), (30, 60), 1, False),
        ((0, 60), (30, 59), 1, False),
        # Five hits, and five misses, on average.
        ((0, 1000), (55, 100), 1, True),
        ((0, 1000), (54, 100), 1, False),
        ((1000, 1000), (45, 100), 1, True),
        ((1000, 1000), (46, 100), 1, False),
        # One in a thousand pairs differs as much by chance; of ten pairs, one of them does.
        ((100, 1000), (149, 1000), 1, True),
        ((149, 1000), (100, 1000), 1, True),
        ((100, 1000), (148, 1000), 1, False),
        ((100, 1000), (159, 1000), 10, True),
        ((100, 1000), (158, 1000), 10, False),
    ],
)
def test_a_change_is_real_from_the_first_miss_on_that_is_beyond_chance(old, new, compared, is_real):
    assert differ(*old, *new, compared) == is_real


@pytest.mark.parametrize(("hits", "misses", "is_listed"), [(40, 20, True), (39, 20, False), (41, 19, False)])
def test_a_new_group_is_listed_with_60_look_ups_and_20_misses(hits, misses, is_listed):
    found = [each.text() for each in changes_between({}, {"shop": row(hits, misses)})]
    assert found == ["new, 33% of look-ups miss, all after deletes"] * is_listed


def test_the_groups_with_most_additional_or_fewer_misses_come_first():
    before = {"a": row(900, 100), "b": row(500, 500), "c": row(900, 100), "same": row(900, 100)}
    after = {"a": row(700, 300), "b": row(900, 100), "c": row(600, 400), "same": row(901, 99)}
    assert [each.name for each in changes_between(before, after)] == ["b", "c", "a"]


# Sentences.


def sentence(old, new, **others):
    """Return the sentence for a group whose hits and misses changed, and perhaps for others."""
    groups = [{"shop": row(*each)} if any(each) else {} for each in (old, new)]
    for name, (before, after) in others.items():
        groups[0][name], groups[1][name] = row(*before), row(*after)
    site = PlainSite(*groups)
    sides = [Side(Span(0, 60, 60), site.within(None, Span(at, 0, 0)).total(), {}, is_cold=False) for at in (0, MARK)]
    return sentence_of(*sides, changes_between(*groups)).partition(" after")[2]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ((9500, 500), (5700, 4300), ". shop: misses rose from 5% to 43%, all after deletes."),
        # The site is three times as busy: that is no change.
        ((900, 100), (2700, 300), ", which may be chance."),
        ((600, 400), (900, 100), ". shop: misses fell from 40% to 10%."),
        ((9960, 40), (9700, 300), ". shop: misses rose from 0.4% to 3%, all after deletes."),
        # One and a half times the misses, and 20 of them.
        ((750, 250), (625, 375), ". shop: misses rose from 25% to 38%, all after deletes."),
        ((750, 250), (626, 374), "."),
        ((200, 0), (180, 20), ". shop: misses rose from 0% to 10%, all after deletes."),
        ((200, 0), (181, 19), "."),
    ],
)
def test_the_sentence_names_a_group_whose_change_is_notable_and_says_no_more_than_the_figures(old, new, expected):
    assert sentence(old, new) == expected


@pytest.mark.parametrize(("others", "is_named"), [("abc", True), ("abcd", False)])
def test_the_sentence_names_a_group_with_a_quarter_of_the_additional_misses(others, is_named):
    changed = (1000, 0), (900, 100)
    assert ("misses rose" in sentence(*changed, **dict.fromkeys(others, changed))) == is_named


@pytest.mark.parametrize(
    ("by_cause", "reason"),
    [
        ({"deleted": 199, "expired": 1}, ", all after deletes"),
        ({"deleted": 198, "expired": 2}, ", mostly after deletes"),
        ({"tag": 100, "expired": 70, "deleted": 30}, ", mostly after drops of a tag"),
        ({"tag": 99, "expired": 71, "deleted": 30}, ""),
        ({"unknown": 200}, ""),
    ],
)
def test_the_reason_is_the_cause_of_half_of_the_additional_misses(by_cause, reason):
    new = row(800, 0)[: -len(MISSES)] + tuple(by_cause.get(cause, 0) for cause in MISSES)
    text = Change("shop", group_of(row(1000, 0)), group_of(new), "release r1").text()
    assert text == f"misses rose from 0% to 20% since release r1{reason}"


# Problems.


@pytest.mark.parametrize(
    ("old", "new", "is_worse"),
    [
        # By two points, twice as often.
        ((980, 20), (960, 40), True),
        ((980, 20), (961, 39), False),
        ((1800, 200), (1600, 400), True),
        ((1800, 200), (1601, 399), False),
        # Or by 20 points.
        ((750, 250), (550, 450), True),
        ((750, 250), (551, 449), False),
        # By 20 misses.
        ((100, 0), (80, 20), True),
        ((90, 0), (71, 19), False),
        ((900, 100), (1900, 100), False),
        # Nor by as many as a busier hour has more of.
        ((99, 1), (872, 28), False),
    ],
)
def test_a_group_is_worse_if_it_misses_more_by_the_least_points_factor_and_number(old, new, is_worse):
    assert Change("shop", group_of(row(*old)), group_of(row(*new))).is_worse == is_worse


WORSE = {"shop": row(1000, 0)}, {"shop": row(500, 500, "new or long gone")}
COLD = (499,)


@pytest.mark.parametrize(
    ("site", "is_problem"),
    [
        ({}, True),
        # A release of the last hour.
        ({"after": HOUR - 10}, True),
        ({"after": HOUR}, False),
        ({"marks": ()}, False),
        ({"after": 50}, False),
        # A cache that the restart has emptied misses, until it has nine tenths of its entries, or ten minutes.
        ({"levels": COLD}, False),
        ({"levels": COLD, "restarts": False}, True),
        ({"levels": (500,)}, True),
        ({"levels": (*COLD, 899), "after": 200}, False),
        ({"levels": (*COLD, 900), "after": 200}, True),
        ({"levels": (*COLD, 900), "after": 70}, False),
        ({"levels": (*COLD, 900), "after": 80}, True),
        ({"levels": (1000,) * 11 + COLD}, False),
        ({"levels": (1000,) * 12 + COLD}, True),
        ({"levels": COLD, "after": 670}, True),
        ({"levels": COLD, "old": {"shop": row(1000, 0)}, "new": {"shop": row(500, 500)}}, True),
        # Workers that share entries are replaced without emptying the cache.
        ({"levels": (0, 1000), "after": 70}, False),
        ({"levels": (0, 1000), "after": 70, "shared": True}, True),
        # An operator has cleared it.
        ({"events": [Event.of(CLEARED, float(MARK), cache="pages", subject="ann")]}, False),
        ({"events": [Event.of(CLEARED, float(MARK), subject="ann")]}, False),
        ({"events": [Event.of(CLEARED, MARK - 1.0, cache="pages", subject="ann")]}, True),
        ({"events": [Event.of(CLEARED, float(MARK), cache="other", subject="ann")]}, True),
        ({"events": [Event.of(CLEARED, float(MARK), cache="pages")]}, True),
        ({"events": [Event.of("inspected", float(MARK), cache="pages", subject="ann")]}, True),
        # A group that is new, or that has the keys of any others.
        ({"old": {}}, False),
        ({"old": {"": row(1000, 0)}, "new": {"": row(500, 500)}}, False),
    ],
)
def test_a_group_that_misses_more_since_the_release_is_a_problem_unless_that_is_the_emptied_cache(site, is_problem):
    given = dict(zip(("old", "new"), WORSE, strict=True)) | site
    assert bool(PlainSite(**given).worse()) == is_problem


@pytest.mark.parametrize("levels", [(1000,), (*COLD, 900)])
def test_ten_minutes_before_and_the_last_five_decide_whether_a_group_is_worse(levels):
    site = PlainSite(*WORSE, after=1200, levels=levels)
    assert site.worse() == ["shop"]
    assert {(each.since - MARK, each.until - MARK) for each in site.read} >= {(-600, 0), (900, 1200)}


# Stretches.


@pytest.mark.parametrize(
    ("site", "at", "stretch"),
    [
        ({"after": 600}, MARK, (600, MARK - 600, MARK)),
        # The step of the moment is on neither side.
        ({"after": 600, "marks": ()}, MARK + 5, (590, MARK - 590, MARK + 10)),
        # Neither side reaches the start of another release.
        ({"after": 600, "marks": (MARK - 100, MARK)}, MARK, (100, MARK - 100, MARK)),
        ({"after": 600, "marks": (MARK, MARK + 100)}, MARK, (100, MARK - 100, MARK)),
        ({"after": 60}, MARK, (60, MARK - 60, MARK)),
        # Before the last hour, in whole minutes.
        ({"after": HOUR, "marks": (MARK, MARK + 100)}, MARK, (60, MARK - 60, MARK)),
        ({"after": DAY - 60}, MARK, (60, MARK - 60, MARK)),
    ],
)
def test_both_stretches_are_as_long_as_the_shorter_one(site, at, stretch):
    seconds, since, begin = stretch
    plain = PlainSite(*WORSE, **site)
    assert plain.compared(at)["seconds"] == seconds
    assert {(each.since, each.until) for each in plain.read} >= {(since, since + seconds), (begin, begin + seconds)}


@pytest.mark.parametrize(
    ("after", "at", "reason"),
    [
        (600, MARK - 550, "Nothing to compare: the figures before or after cover less than a minute."),
        (50, MARK, "Wait a minute: the release started only 54 s ago."),
        (60, MARK + 5, "Wait a minute: that was only 59 s ago."),
        (60, MARK + 4, "Wait some seconds: that was only 60 s ago."),
        (600, MARK + 700, "Nothing to compare: that time is yet to come."),
        (DAY - 50, MARK, "Nothing to compare: the figures before or after cover less than a minute."),
        (2 * DAY, MARK, "Nothing to compare: the figures before or after cover less than a minute."),
    ],
)
def test_sides_that_cannot_be_compared_come_with_the_reason(after, at, reason):
    found = PlainSite(*WORSE, after=after, marks=(MARK - 500, MARK)).compared(at)
    assert (found["sentence"], found["before"], found["after"], found["groups"]) == (reason, None, None, [])


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({}, {"shop": row(60, 0)}, "Nothing to compare: there were no look-ups before."),
        ({"shop": row(59, 0)}, {"shop": row(60, 0)}, "Too few look-ups to compare: 59 before, 60 after."),
        ({"shop": row(60, 0)}, {"shop": row(60, 0)}, "100.0% hits before, 100.0% after, which may be chance."),
    ],
)
def test_too_few_look_ups_are_not_compared(old, new, expected):
    assert PlainSite(old, new).compared()["sentence"] == expected


@pytest.mark.parametrize(("level", "is_cold"), [(499, True), (500, False)])
def test_a_side_that_began_with_an_empty_cache_is_cold(level, is_cold):
    found = PlainSite(*WORSE, levels=(level,) * 12 + (1000,)).compared()
    assert (found["before"]["is_cold"], found["after"]["is_cold"]) == (False, is_cold)
    assert ("The cache was cold after: it began empty" in found["sentence"]) == is_cold


# With published figures.


def minute_of(cache, clock, *, deletes):
    """Look up 60 entries of a group, of which one, or nine of ten, are then deleted."""
    for number in range(60):
        cache.get_or_load(f"shop:product:{number}", lambda: clock.advance(0.5 if deletes else 0.125))
        cache.get_or_load(f"about:{number % 7}", lambda: 1)
        if number == 0 or (deletes and number % 10):
            cache.delete(f"shop:product:{number}")
    clock.advance(60 - clock() % 60)


@pytest.mark.compiled
def test_the_command_compares_the_published_figures(make, clock, command, monkeypatch):
    monkeypatch.setattr(SystemClock, "time", staticmethod(lambda: MARK + clock()))
    monkeypatch.setattr(SystemClock, "steady", staticmethod(lambda: clock()))
    cache = make(max_entries=1000)
    minute_of(cache, clock, deletes=False)
    clock.advance(120 - clock() % 60)
    for _ in range(5):
        minute_of(cache, clock, deletes=False)
    changed = clock()
    for _ in range(5):
        minute_of(cache, clock, deletes=True)
    clock.advance(5)
    site = Site([cache])
    found = compare(site, site.caches[0], Release(MARK + changed, "7f3c"))
    assert found["sentence"] == "99.2% hits before, 63.2% after. shop: misses rose from 2% to 74%, all after deletes."
    assert (found["seconds"], found["after"]["is_cold"]) == (300, False)
    assert found["before"]["load_p90_ms"] < found["after"]["load_p50_ms"]
    assert found["after"]["computing_per_minute"] == pytest.approx(44.2 * 0.5)
    at = datetime.fromtimestamp(MARK + changed).isoformat()
    shown, reason = command("compare", "--before", at)
    assert reason is None
    first, *lines = shown.splitlines()
    assert first == f"Cache 'pages' since {date_of(MARK + changed)}, 300 seconds each: {found['sentence']}"
    assert ["before", "99.2%"] in [line.split()[:2] for line in lines]
    assert ["shop", "1.7%", "73.7%", "Deleted"] in [line.split() for line in lines]
    ((document,), _) = command("compare", "--json", "--before", at)
    assert (document["cache"], document["groups"]) == ("pages", found["groups"])
    _, reason = command("compare", "--before", "1999-01-01T10:00Z")
    assert reason == "Nothing to compare: the figures before or after cover less than a minute."
