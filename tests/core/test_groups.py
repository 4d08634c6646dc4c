"""The counts of the groups of keys: exact in the compiled core, compared with a model that is simple and slow."""

from contextvars import copy_context
from functools import partial
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.cores import CORES, labels
from wheelcache.core.contract import VIEW, GroupRule, MissCause
from wheelcache.core.group_rules import group_by_rules
from wheelcache.engine.keys import NO_VIEW

pytestmark = pytest.mark.compiled

PLACES = 64
MOST_ENTRIES = 40
NEW = list(MissCause).index(MissCause.NEW)
RULES = (GroupRule("page.", "page ", "."), GroupRule("session", "sessions", ""), GroupRule("", "", ":"))
KINDS = ("hits", "stale_hits", "puts", "loads", "load_failures", "misses", "seconds")


@pytest.fixture
def core():
    made = CORES["compiled"]()
    made.group_by(RULES)
    return made


def counts(core, count):
    return {each.name: getattr(each, count) for each in core.groups()}


def names(core):
    return {each.name for each in core.groups()} - {""}


class Model:
    """The groups, by what they mean: the numbers of the core are objects, which entries refer to."""

    def __init__(self):
        self.none = self.new("", 0)
        self.groups, self.retired, self.entries = {}, [], {}

    def new(self, name, rank):
        return {"name": name, "rank": rank, **dict.fromkeys(KINDS, 0)}

    def group(self, key, given=None, rank=0):
        name = group_by_rules(RULES, key) if given is None else given
        is_of_site = (
            given is not None or name.startswith(("page ", "sessions")) or (type(key) is tuple and len(key) > 1)
        )
        rank = max(rank, 2 * is_of_site)
        if not name:
            return self.none
        found = self.groups.get(name)
        if found is None:
            if len(self.groups) == PLACES:
                least = min(self.groups.values(), key=lambda each: (each["rank"], each["seconds"]))
                if least["rank"] >= rank:
                    return self.none
                self.retired.append(self.groups.pop(least["name"]))
            found = self.groups[name] = self.new(name, rank)
        found["rank"] = max(found["rank"], rank)
        return found

    def counts(self):
        """Return the counts by name, without the groups that have none."""
        shown = {name: {kind: each[kind] for kind in KINDS} for name, each in {"": self.none, **self.groups}.items()}
        for each in self.retired:
            for kind in KINDS:
                shown[""][kind] += each[kind]
        shown = {name: each for name, each in shown.items() if name == "" or any(each.values())}
        return shown if len(shown) > 1 or any(shown[""].values()) else {}


def compare(core, model):
    found = {
        each.name: {**each._asdict(), "misses": sum(each.misses), "seconds": each.load_seconds}
        for each in core.groups()
    }
    assert {name: {kind: each[kind] for kind in KINDS} for name, each in found.items()} == model.counts()
    total = core.counts()
    assert sum(counts(core, "hits").values()) == total.hits
    assert sum(counts(core, "puts").values()) == total.puts
    causes = [each.misses for each in core.groups()] or [(0,) * len(MissCause)]
    assert tuple(map(sum, zip(*causes, strict=True))) == total.causes
    groups = {record.key: record.group for record in core.scan().step(10**6)}
    assert groups == {key: "" if group in model.retired else group["name"] for key, group in model.entries.items()}


# More names than places, and a few that come often.
NAMES = st.one_of(st.integers(0, 3), st.integers(0, 110)).map(str)
KEYS = st.one_of(
    st.builds("{}:{}".format, NAMES, st.integers(0, 2)),
    st.builds("page.{}.x".format, NAMES),
    st.sampled_from(["plain", "session 1", "session 2"]),
    st.builds(lambda name: (f"f{name}", 1), NAMES),
    st.builds(lambda name: (f"{name}:1",), NAMES),
)
GIVEN = st.one_of(st.none(), st.none(), NAMES.map("view {}".format), NAMES, st.just(""))
STEPS = st.one_of(
    st.tuples(st.sampled_from(["set", "miss", "load"]), KEYS, GIVEN),
    st.tuples(st.sampled_from(["find", "stale", "waited", "delete"]), KEYS, st.none()),
    st.tuples(st.just("flood"), st.integers(0, 70), st.sampled_from(["set", "miss", "load"])),
    st.tuples(st.sampled_from(["clear", "fork", "change"]), KEYS, st.none()),
)


def do(core, model, name, key, given):
    """Do a step in the core and in the model."""
    entries = model.entries
    match name:
        case "set":
            group = (given is None and entries.pop(key, None)) or model.group(key, given)
            core.set(key, 1, None, labels=labels(group=given))
            entries.pop(key, None)
            if len(entries) == MOST_ENTRIES:
                # The oldest: of equal uses, LRU.
                del entries[next(iter(entries))]
            entries[key] = group
            group["puts"] += 1
        case "change" if key in entries:
            core.replace(key, 2, None, core.peek(key).value)
            entries[key] = entries.pop(key)
            entries[key]["puts"] += 1
        case "find":
            if core.find(key) is not None:
                entries[key] = entries.pop(key)
                entries[key]["hits"] += 1
        case "stale" | "waited":
            group = entries.get(key) or model.group(key)
            (core.count_stale_hit if name == "stale" else core.count_hit)(key)
            group["stale_hits" if name == "stale" else "hits"] += 1
        case "miss":
            core.count_miss(key, NEW, group=given)
            model.group(key, given)["misses"] += 1
        case "load":
            group = model.group(key, given, rank=1)
            assert core.count_load(key, 0.25, group=given, has_failed=given is None) == group["name"]
            group["load_failures"] += given is None
            group["loads"] += 1
            group["seconds"] += 0.25
        case "flood":
            for number in range(key):
                do(core, model, given, f"stranger{number}:x", None)
        case "delete":
            core.delete(key)
            entries.pop(key, None)
        case "clear":
            core.clear()
            core.drain()
            entries.clear()
        case "fork":
            core.after_fork(in_child=True)
            for each in (model.none, *model.groups.values(), *model.retired):
                each.update(dict.fromkeys(KINDS, 0))


@settings(max_examples=3 * settings.default.max_examples)
@given(st.lists(STEPS, max_size=60))
def test_the_counts_are_those_of_the_model(steps):
    core, model = CORES["compiled"](max_entries=MOST_ENTRIES), Model()
    core.group_by(RULES)
    for name, key, given_name in steps:
        do(core, model, name, key, given_name)
        compare(core, model)


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
