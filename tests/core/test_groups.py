"""The counts of the groups of keys in the compiled core are exact, compared with a model that is simple and slow."""

from contextvars import copy_context
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.implementations import CORES
from tests.core.labels import labels
from wheelcache.core.contract import VIEW, GroupRule, MissCause
from wheelcache.engine.keys import NO_VIEW

pytestmark = pytest.mark.compiled

PLACES = 64
MOST_ENTRIES = 40
NEW = list(MissCause).index(MissCause.NEW)
RULES = (GroupRule("page.", "page ", "."), GroupRule("session", "sessions", ""), GroupRule("", "", ":"))


class Model:
    """The groups, by what they mean: the numbers of the core are objects, which entries refer to."""

    def __init__(self):
        self.none = self.new("", 0)
        self.groups = {}
        self.retired = []
        self.entries = {}

    def new(self, name, rank):
        return {"name": name, "rank": rank, "seconds": 0.0, **self.zero()}

    def zero(self):
        return dict.fromkeys(("hits", "stale_hits", "puts", "loads", "load_failures", "misses"), 0)

    def name_of(self, key):
        """Return the name of the group of a key, and its rank."""
        text, is_call = (key[0], len(key) > 1) if isinstance(key, tuple) else (key, False)
        if text.startswith("page.") and "." in text[5:]:
            return "page " + text[5:].partition(".")[0], 2
        if text.startswith("session"):
            return "sessions", 2
        name, found, _ = text.partition(":")
        return (name, 2 if is_call else 0) if found or is_call else ("", 0)

    def group(self, key, given=None, rank=0):
        name, rank_of_name = self.name_of(key) if given is None else (given, 2)
        rank = max(rank, rank_of_name)
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

    def named(self, group):
        return "" if group in self.retired else group["name"]

    def counts(self):
        """Return the counts by name, without the groups that have none."""
        found = {"": self.none, **self.groups}
        sums = {name: {kind: each[kind] for kind in (*self.zero(), "seconds")} for name, each in found.items()}
        for each in self.retired:
            for kind in sums[""]:
                sums[""][kind] += each[kind]
        counted = {name: each for name, each in sums.items() if name == "" or any(each[kind] for kind in self.zero())}
        return counted if len(counted) > 1 or any(counted[""].values()) else {}

    def start_over(self):
        for each in (self.none, *self.groups.values(), *self.retired):
            each.update(self.zero(), seconds=0.0)


def compare(core, model):
    found = {
        each.name: {**each._asdict(), "misses": sum(each.misses), "seconds": each.load_seconds}
        for each in core.groups()
    }
    shown = {name: {kind: each[kind] for kind in (*model.zero(), "seconds")} for name, each in found.items()}
    assert shown == model.counts()
    counts = core.counts()
    assert sum(each.hits for each in core.groups()) == counts.hits
    assert sum(each.puts for each in core.groups()) == counts.puts
    causes = [each.misses for each in core.groups()] or [(0,) * len(MissCause)]
    assert tuple(map(sum, zip(*causes, strict=True))) == counts.causes
    groups = {record.key: record.group for record in core.scan().step(10**6)}
    assert groups == {key: model.named(group) for key, group in model.entries.items()}


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
    st.tuples(st.just("set"), KEYS, GIVEN),
    st.tuples(st.just("find"), KEYS, st.none()),
    st.tuples(st.just("stale"), KEYS, st.none()),
    st.tuples(st.just("waited"), KEYS, st.none()),
    st.tuples(st.just("miss"), KEYS, GIVEN),
    st.tuples(st.just("load"), KEYS, GIVEN),
    st.tuples(st.just("flood"), st.integers(0, 70), st.sampled_from(["set", "miss", "load"])),
    st.tuples(st.just("delete"), KEYS, st.none()),
    st.tuples(st.sampled_from(["clear", "fork", "change"]), KEYS, st.none()),
)


def do(core, model, name, key, given):
    entries = model.entries
    if name == "set":
        group = (given is None and entries.get(key)) or model.group(key, given)
        stored = core.set(key, 1, None, labels=labels(group=given)) & 1
        if stored:
            entries.pop(key, None)
            if len(entries) == MOST_ENTRIES:
                # The oldest: of equal uses, LRU.
                del entries[next(iter(entries))]
            entries[key] = group
            group["puts"] += 1
    elif name == "change" and key in entries:
        core.replace(key, 2, None, core.peek(key).value)
        entries[key] = entries.pop(key)
        entries[key]["puts"] += 1
    elif name == "find":
        if core.find(key) is not None:
            entries[key] = entries.pop(key)
            entries[key]["hits"] += 1
    elif name in ("stale", "waited"):
        group = entries.get(key) or model.group(key)
        (core.count_stale_hit if name == "stale" else core.count_hit)(key)
        group["stale_hits" if name == "stale" else "hits"] += 1
    elif name == "miss":
        core.count_miss(key, NEW, group=given)
        model.group(key, given)["misses"] += 1
    elif name == "load":
        group = model.group(key, given, rank=1)
        assert core.count_load(key, 0.25, group=given, has_failed=given is None) == group["name"]
        group["load_failures"] += given is None
        group["loads"] += 1
        group["seconds"] += 0.25
    elif name == "flood":
        for number in range(key):
            do(core, model, given, f"stranger{number}:x", None)
    elif name == "delete":
        core.delete(key)
        entries.pop(key, None)
    elif name == "clear":
        core.clear()
        core.drain()
        entries.clear()
    elif name == "fork":
        core.before_fork()
        core.after_fork(in_child=True)
        model.start_over()


@settings(deadline=None, max_examples=200)
@given(st.lists(STEPS, max_size=60))
def test_the_counts_are_those_of_the_model(steps):
    core, model = CORES["compiled"](max_entries=MOST_ENTRIES, policy="lru"), Model()
    core.group_by(RULES)
    for name, key, given_name in steps:
        do(core, model, name, key, given_name)
        compare(core, model)


def counts(core, count):
    return {each.name: getattr(each, count) for each in core.groups()}


def test_entries_keep_their_group_when_blocks_grow_move_and_shrink():
    core = CORES["compiled"]()
    core.group_by(RULES)
    for number in range(20_000):
        core.set(
            f"{number % 7}:{number}",
            number,
            None,
            labels=labels(group=f"view {number % 50}" if number % 5 == 0 else None),
        )

    def group_of(number):
        return f"view {number % 50}" if number % 5 == 0 else f"{number % 7}"

    for number in range(20_000):
        if number % 16:
            core.delete(f"{number % 7}:{number}")
    found = {record.value: record.group for record in core.scan().step(10**6)}
    assert found == {number: group_of(number) for number in range(0, 20_000, 16)}
    assert len(set(found.values())) == 12


def test_strangers_do_not_keep_out_groups_of_the_site():
    core = CORES["compiled"]()
    core.group_by(RULES)
    for number in range(1000):
        core.set(f"stranger{number}:profile", 1, None)
    assert len(core.groups()) == PLACES + 1
    core.find("stranger0:profile")
    for number in range(100):
        core.count_load(f"{number}:computed", 0.5)
    for number in range(10):
        core.count_miss("key", group=f"view {number}")
    for number in range(1000):
        core.count_load(f"stranger{number}:profile", 0.25)
    found = counts(core, "loads")
    assert len(found) == PLACES + 1
    assert {f"view {number}" for number in range(10)} < found.keys()
    assert sum(name.isdigit() for name in found) == PLACES - 10
    assert counts(core, "hits")[""] == 1, "an entry of a group that gave its place away"
    assert sum(found.values()) == 1100
    assert sum(counts(core, "puts").values()) == core.counts().puts == 1000


def test_a_new_name_takes_a_place_of_a_lower_rank_only_and_the_lowest_first():
    core = CORES["compiled"]()
    core.group_by(RULES)

    def missed(key, name=None):
        core.count_miss(key, group=name)

    def names():
        return {each.name for each in core.groups()} - {""}

    # Names from the code of the site, in each way, which take no time to compute; and texts, one of which is computed.
    missed("session 1")
    for number in range(19):
        missed(f"page.{number}.x")
        missed((f"call{number}", 1))
        missed("any", f"view {number}")
    missed("becomes a view:1")
    missed("any", "becomes a view")
    missed("computed:1")
    core.count_load("computed:1", 2.0)
    for number in range(4):
        missed(f"text{number}:1")
    of_site = names() - {"computed", "text0", "text1", "text2", "text3"}
    assert (len(of_site), len(names())) == (PLACES - 5, PLACES)

    def texts_after(change, *args, **given):
        change(*args, **given)
        assert of_site <= names()
        return names() - of_site

    texts = {f"text{number}" for number in range(4)}
    assert texts_after(missed, "another text:1") == {"computed", *texts}
    for number in range(4):
        found = texts_after(core.count_load, f"short{number}:1", 0.5 + number)
        assert (len(found - texts), len(found & texts)) == (number + 2, 3 - number)
    computed = {"computed", *(f"short{number}" for number in range(4))}
    assert texts_after(missed, "another text:1") == computed
    assert texts_after(core.count_load, "refused:1", 9.0) == computed
    for least in ("short0", "short1", "computed", "short2", "short3"):
        missed("any", f"instead of {least}")
        of_site.add(f"instead of {least}")
        computed.remove(least)
        assert names() == of_site | computed
    assert texts_after(missed, "any", "no place") == set()


def test_numbers_of_groups_never_run_out():
    core = CORES["compiled"]()
    core.group_by(RULES)
    for kind in ("a", "b", "c"):
        for number in range(200):
            key, given_name = f"{kind}{number}:", f"view {number}" if kind == "c" else None
            core.count_miss(key, group=given_name)
            if kind == "b":
                core.count_load(key, 1.0)
    assert set(counts(core, "loads")) == {"", *(f"view {number}" for number in range(PLACES))}
    assert sum(counts(core, "loads").values()) == 200


@pytest.mark.parametrize(
    ("given_name", "shown"),
    [
        ("é" * 48, "é" * 48),
        ("é" * 49, "é" * 48),
        ("a" + "é" * 48, "a" + "é" * 47),
        ("x" * 200, "x" * 96),
        ("a:b\n", "a:b\n"),
        ("\ud800", "?"),
        ("", ""),
    ],
)
def test_a_given_name_has_96_bytes_at_most(given_name, shown):
    core = CORES["compiled"]()
    core.set("key", 1, None, labels=labels(group=given_name))
    core.find("key")
    assert core.peek("key").group == shown
    assert counts(core, "hits")[shown] == 1


def test_a_name_that_is_no_string_is_refused():
    core = CORES["compiled"]()
    with pytest.raises(TypeError):
        core.set("key", 1, None, labels=labels(group=1))
    with pytest.raises(TypeError):
        core.count_miss("key", group=b"view")
    assert (len(core), core.groups()) == (0, [])


class Text(str):
    """A name of another class, such as that of an Enum."""


PAGES = (GroupRule("page/", "", ""), GroupRule("", "", ":"))


def test_pages_are_in_the_group_of_the_running_view():
    core = CORES["compiled"]()
    core.group_by(PAGES)
    for view in (Text("news"), "größe", None):
        context = copy_context()
        context.run(VIEW.set, view)
        for call in (core.count_miss, partial(core.count_load, seconds=0.5), partial(core.set, value=1, ttl=None)):
            context.run(call, f"page/{view}")
        context.run(core.count_miss, "user:1")
    core.find("page/news")
    core.find("page/None")
    found = {each.name: (each.hits, each.puts, each.loads, sum(each.misses)) for each in core.groups()}
    assert found == {
        "": (0, 0, 0, 0),
        "news": (1, 1, 1, 1),
        "größe": (0, 1, 1, 1),
        NO_VIEW: (1, 1, 1, 1),
        "user": (0, 0, 0, 3),
    }
    assert core.peek("page/größe").group == "größe"


def test_a_page_that_is_stored_again_after_it_has_expired_belongs_to_its_present_view():
    now, core = [0.0], CORES["compiled"](max_entries=10)
    core.use_clock(lambda: now[0])
    core.group_by([GroupRule("page.", "", "")])
    context = copy_context()
    for view in ("old", "new"):
        context.run(VIEW.set, view)
        context.run(core.set, "page.1", 1, 5.0)
        context.run(core.set, "page.1", 2, 5.0)
        core.find("page.1")
        now[0] += 10.0
    assert {each.name: (each.hits, each.puts) for each in core.groups() if each.name} == {"old": (1, 2), "new": (1, 2)}


TWO_LOOK_UPS = (GroupRule("list.", "pages", "", is_preliminary=True), GroupRule("page.", "pages", ""), *RULES)


def test_the_misses_the_loads_and_the_puts_of_preliminary_keys_count_in_the_group_of_their_name():
    core = CORES["compiled"]()
    core.group_by(TWO_LOOK_UPS)
    core.count_miss("list.1")
    core.count_load("list.1", 0.5)
    for key in ("list.1", "page.1"):
        core.set(key, 1, None)
        assert core.find(key) == 1
        assert core.peek(key).group == "pages"
    (pages,) = [each for each in core.groups() if each.name]
    assert (pages.name, pages.hits, pages.puts, pages.loads, sum(pages.misses)) == ("pages", 1, 2, 1, 1)
    core.before_fork()
    core.after_fork(in_child=True)
    assert core.groups() == []
    core.find("list.1")
    assert core.groups() == []
    core.set("list.1", 1, None)
    assert counts(core, "puts") == {"": 0, "pages": 1}


def test_the_sums_are_exact_if_the_group_of_preliminary_keys_has_lost_its_place():
    core = CORES["compiled"]()
    core.group_by(TWO_LOOK_UPS)
    core.set("list.1", 1, None)
    # No group has this name yet.
    assert counts(core, "puts") == {"": 1}
    for number in range(PLACES):
        core.count_miss("any", group=f"view {number}")
    core.set("page.1", 1, None)
    core.set("list.2", 1, None)
    assert [core.find(key) for key in ("list.1", "list.2", "page.1")] == [1, 1, 1]
    assert (counts(core, "puts")[""], counts(core, "hits")[""]) == (3, 1)
    assert (core.counts().puts, core.counts().hits) == (3, 1)
