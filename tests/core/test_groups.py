"""The counts of the groups of keys, which are exact in the compiled core."""

from contextvars import copy_context
from functools import partial
from typing import NamedTuple

import pytest

from tests.core.cores import CORES, labels
from wheelcache.core.contract import VIEW, GroupRule
from wheelcache.core.group_rules import group_by_rules
from wheelcache.engine.keys import NO_VIEW

pytestmark = pytest.mark.compiled

PLACES = 64
RULES = (GroupRule("page.", "page ", "."), GroupRule("session", "sessions", ""), GroupRule("", "", ":"))


@pytest.fixture
def core():
    made = CORES["compiled"]()
    made.group_by(RULES)
    return made


def counts(core, count):
    return {each.name: getattr(each, count) for each in core.groups()}


def names(core):
    return {each.name for each in core.groups()} - {""}


def events(core):
    """Return the hits, stale hits, puts, loads, failed loads, misses and seconds of each group."""
    found = {each.name: (*each[1:6], sum(each.misses), each.load_seconds) for each in core.groups()}
    total = core.counts()
    assert sum(counts(core, "hits").values()) == total.hits
    assert sum(counts(core, "puts").values()) == total.puts
    assert tuple(map(sum, zip(*counts(core, "misses").values(), strict=True))) == total.causes
    return found


def test_each_event_counts_in_the_group_of_its_key_or_entry_as_long_as_that_has_a_place(core):
    core.set("a:1", 1, None)
    core.set("a:2", 1, None, labels=labels(group="view"))
    core.set("a:2", 1, None)
    core.replace("a:2", 2, None, 1)
    for key in ("a:1", "a:2"):
        assert core.find(key)
        core.count_stale_hit(key)
    core.count_hit("a:3")
    core.count_hit("b:1")
    for key, given, group in (("a:1", None, "a"), ("a:1", "view", "view"), ("plain", None, "")):
        core.count_miss(key, group=given)
        assert core.count_load(key, 0.25, group=given, has_failed=given is None) == group
    assert events(core) == {
        "": (0, 0, 0, 1, 1, 1, 0.25),
        "a": (2, 1, 1, 1, 1, 1, 0.25),
        "b": (1, 0, 0, 0, 0, 0, 0),
        "view": (1, 1, 3, 1, 0, 1, 0.25),
    }
    # Names from the code of the site take the places of those from keys.
    for number in range(PLACES):
        core.count_miss("any", group=f"view {number}")
    core.set("a:1", 2, None)
    assert (core.find("a:1"), core.peek("a:1").group, core.peek("a:2").group) == (2, "", "view")
    found = events(core)
    assert (found.pop(""), found.pop("view")) == ((4, 1, 2, 2, 2, 3, 0.5), (1, 1, 3, 1, 0, 1, 0.25))
    assert set(found.values()) == {(0, 0, 0, 0, 0, 1, 0)}
    core.after_fork(in_child=True)
    assert core.groups() == []
    assert core.find("a:2") == 2
    assert events(core) == {"": (0,) * 7, "view": (1, 0, 0, 0, 0, 0, 0)}


class Named(NamedTuple):
    name: str
    number: int

    def __len__(self):
        raise AssertionError("the core ran the code of a key")


PREFIX = "p" * 40
GROUPS = {
    "fragment side": [":1:template.cache.side.0123"],
    "sessions": [":1:sessions:a"],
    "user": [":1:user:5", (":1:user:6",)],
    "function": [(":1:function", 1, 2), Named(":1:function", 1)],
    "city": [":1:city:Zürich"],
    "x" * 96: [f":1:{'x' * 96}:"],
    # The end of what a rule sees.
    "y" * 87: [f"{PREFIX}{'y' * 87}:"],
    "": [
        *(":1:template.cache.side", "user:7", ":1:plain", (":1:plain",), ":1::", ("é", 1), ("other", 1), ":1:Zürich:1"),
        *((":1:Zürich", 1), f":1:{'x' * 97}:", f"{PREFIX}{'y' * 88}:", 5, "", (), b":1:a:1"),
    ],
}


@pytest.mark.parametrize("group", GROUPS)
def test_the_first_rule_that_fits_names_the_group_of_a_key(core, group):
    rules = [(":1:template.cache.", "fragment ", "."), (":1:sessions", "sessions", ""), (":1:", "", ":")]
    rules = [GroupRule(*rule) for rule in (*rules, (PREFIX, "", ":"))]
    core.group_by(rules)
    for key in GROUPS[group]:
        core.set(key, 1, None)
        assert core.peek(key).group == group
        if type(key) is not Named:
            assert group_by_rules(rules, key) == group


def test_other_rules_are_for_later_counts(core):
    core.count_miss("a:1")
    core.group_by([GroupRule("a", "all of a", "")])
    core.count_miss("a:1")
    assert {name: sum(each) for name, each in counts(core, "misses").items()} == {"": 0, "a": 1, "all of a": 1}


def test_a_new_name_takes_a_place_of_a_lower_rank_only_and_the_one_with_the_least_computing_time(core):
    # Names from the code of the site, in each way, which take no time to compute.
    for number in range(PLACES // 4):
        core.count_miss(f"page.{number}.x")
        core.count_miss((f"call{number}", 1))
        core.count_miss("any", group=f"view {number}")
        core.count_miss(f"text{number}:1")
    core.count_miss("any", group="text0")
    of_site = names(core) - {f"text{number}" for number in range(1, PLACES // 4)}
    assert (len(names(core)), len(of_site)) == (PLACES, 3 * PLACES // 4 + 1)

    def texts():
        assert of_site <= names(core)
        return names(core) - of_site

    before = texts()
    core.count_miss("another text:1")
    assert texts() == before
    computed = [f"computed{number}" for number in range(len(before))]
    for number, name in enumerate(computed):
        core.count_load(f"{name}:1", 1 + number * 7 % 15)
        assert len(texts() & before) == len(before) - number - 1
    core.count_miss("another text:1")
    core.count_load("refused:1", 99.0)
    assert texts() == {*computed}
    for least in sorted(computed, key=lambda name: int(name.removeprefix("computed")) * 7 % 15):
        core.count_miss("any", group=f"instead of {least}")
        of_site.add(f"instead of {least}")
        computed.remove(least)
        assert texts() == {*computed}
    core.count_miss("any", group="no place")
    assert names(core) == of_site


@pytest.mark.parametrize(
    ("given_name", "shown"),
    [
        *(("é" * 48, "é" * 48), ("é" * 49, "é" * 48), ("a" + "é" * 48, "a" + "é" * 47)),
        *(("x" * 96, "x" * 96), ("x" * 200, "x" * 96), ("a:b\n", "a:b\n"), ("\ud800", "?"), ("", "")),
    ],
)
def test_a_given_name_has_96_bytes_at_most(core, given_name, shown):
    core.set("key", 1, None, labels=labels(group=given_name))
    core.find("key")
    assert (core.peek("key").group, counts(core, "hits")[shown]) == (shown, 1)


class Text(str):
    """A name of another class, such as that of an Enum."""


def test_pages_are_in_the_group_of_the_running_view(core):
    core.group_by((GroupRule("page/", "", ""), GroupRule("", "", ":")))
    for view in (Text("news"), "größe", None):
        context = copy_context()
        context.run(VIEW.set, view)
        for call in (core.count_miss, partial(core.count_load, seconds=0.5), partial(core.set, value=1, ttl=None)):
            context.run(call, f"page/{view}")
        context.run(core.count_miss, "user:1")
    core.find("page/news")
    core.find("page/None")
    found = {each.name: (each.hits, each.puts, each.loads, sum(each.misses)) for each in core.groups()}
    views = {"news": (1, 1, 1, 1), "größe": (0, 1, 1, 1), NO_VIEW: (1, 1, 1, 1)}
    assert found == {"": (0, 0, 0, 0), **views, "user": (0, 0, 0, 3)}
    assert core.peek("page/größe").group == "größe"


class TestPreliminaryKeys:
    @pytest.fixture
    def core(self, core):
        core.group_by((GroupRule("list.", "pages", "", is_preliminary=True), GroupRule("page.", "pages", ""), *RULES))
        return core

    def test_their_misses_loads_and_puts_count_in_the_group_of_their_name(self, core):
        core.count_miss("list.1")
        core.count_load("list.1", 0.5)
        for key in ("list.1", "page.1"):
            core.set(key, 1, None)
            assert core.find(key) == 1
            assert core.peek(key).group == "pages"
        (pages,) = [each for each in core.groups() if each.name]
        assert (pages.name, pages.hits, pages.puts, pages.loads, sum(pages.misses)) == ("pages", 1, 2, 1, 1)
        core.after_fork(in_child=True)
        core.find("list.1")
        assert core.groups() == []
        core.set("list.1", 1, None)
        assert counts(core, "puts") == {"": 0, "pages": 1}
