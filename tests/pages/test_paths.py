"""The figures name the paths with most responses that were not stored, and those with too many variants."""

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wheelcache
from tests.guests import has, needs
from tests.pages.site import Response, answering
from wheelcache.pages.busiest import LONGEST_PATH, NOT_STORED, PLACES, NamedPaths, SpaceSaving, readable
from wheelcache.pages.figures import Figures
from wheelcache.pages.reasons import BYPASSING, MOST_REASONS, REASONS, refusal
from wheelcache.pages.variants import MOST_VARIANTS

if has("watch"):
    from tests.watch.published import INTERVAL, only


def refuse(figures, reason, **numbers):
    for name, number in numbers.items():
        for _ in range(number):
            figures.refused(refusal(reason), f"/{name}", "view")


# The algorithm.


@given(st.lists(st.integers(0, 60).map(lambda number: f"/{number * number // 40}"), max_size=600))
def test_the_counts_bound_the_occurrences_and_no_frequent_path_is_missing(paths):
    busiest, true = SpaceSaving(), Counter(paths)
    for each in paths:
        busiest.add(each)
    assert len(busiest.places) == min(PLACES, len(true))
    for each, (count, error, _) in busiest.places.items():
        assert count - error <= true[each] <= count
    assert {each for each, number in true.items() if number > len(paths) / PLACES} <= busiest.places.keys()
    numbers = [*busiest.numbers().values()]
    assert numbers == sorted(numbers, reverse=True)


def test_each_occurrence_is_published_once_and_all_again_in_a_new_database():
    paths = NamedPaths({NOT_STORED: 1})
    paths.add(NOT_STORED, "private", "/a", 3)
    old = paths.unpublished()
    paths.published(old)
    paths.add(NOT_STORED, "private", "/a")
    for occurrences in (paths.unpublished(), old):
        paths.published(occurrences)
    assert (old[0].number, paths.unpublished()) == (3, [])
    paths.publish_again()
    assert [each.number for each in paths.unpublished()] == [4]


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/news/2024", "/news/2024"),
        ("/größe".encode().decode("latin-1"), "/größe"),
        ("/\xff", "/%FF"),
        ("/a b?c%d#e", "/a%20b%3Fc%25d%23e"),
        ("/\x1b[2J\r\n", "/%1B[2J%0D%0A"),
        ("/\u202eevil".encode().decode("latin-1"), "/%E2%80%AEevil"),
        ("/<b>", "/<b>"),
    ],
)
def test_a_path_is_shown_readable_and_without_control_characters(path, shown):
    assert readable(path) == shown


# The counts of one process.


def test_each_reason_has_its_paths_without_their_queries(site):
    site.respond = lambda request: Response(headers={"cache-control": "private" if "p" in request.path else "no-store"})
    for target in ("/p?a", "/p?b", "/p/größe".encode().decode("latin-1"), "/n", "/n", "/n"):
        site.get(target)
    assert site.stats().not_stored_paths == {"private": {"/p": 2, "/p/größe": 1}, "no-store": {"/n": 3}}


def test_a_long_path_is_cut():
    figures = Figures()
    figures.refused(refusal("status"), "/" + "a" * 5000, "view")
    assert figures.stats().not_stored_paths == {"status": {"/" + "a" * (LONGEST_PATH - 1): 1}}


def test_an_application_that_makes_up_reasons_makes_no_more_than_a_few():
    figures = Figures()
    refuse(figures, "private", a=1)
    for number in range(2000):
        figures.refused(refusal(f"made up {number}"), "/", "view")
    refuse(figures, "status", a=1)
    not_stored = figures.stats().not_stored
    assert (not_stored["private"], not_stored["status"]) == (1, 1)
    assert not_stored["other"] == 2000 - (MOST_REASONS - 1)
    assert sum(not_stored.values()) == 2002


def test_a_page_with_too_many_variants_names_the_header_that_has_them(site):
    site.respond = answering({"cache-control": "max-age=60", "vary": "user-agent, accept-encoding"})
    for number in range(MOST_VARIANTS + 3):
        site.get("/news?a", {"user-agent": f"browser {number}", "accept-encoding": "gzip"})
    stats = site.stats()
    assert (stats.full_variants, stats.variants_removed) == ({"user-agent": {"/news": 3}}, 3)
    assert stats.not_stored == {}


def test_a_child_of_a_fork_begins_its_own_paths_and_owes_no_bytes_to_the_clients_of_its_parent():
    figures = Figures()
    refuse(figures, "status", a=100)
    figures.unsent = 5
    figures.after_fork_in_child()
    assert (figures.stats().not_stored_paths, figures.unpublished_paths(), figures.weight) == ({}, [], 0)


def test_each_reason_of_the_package_is_explained_with_its_detail():
    sources = [each.read_text() for each in Path(wheelcache.__file__).parent.rglob("*.py")]
    call = r'(?:refuse|refusal|because)\(\s*"([^"]+)"(?:, (?:"([^"]+)"|f"))?'
    found = {each for source in sources for each in re.findall(call, source)}
    explained = {**REASONS, **BYPASSING}
    assert explained.keys() - {name for name, _ in found} <= {"other"}
    for name, detail in found:
        assert not detail or {detail, f"reads {detail}"} & {*explained[name].details}, detail
    assert all(each.endswith(".") for reason in explained.values() for each in (reason.cause, reason.advice))


# The figures of a site.


@needs("watch")
def test_the_paths_of_all_workers_are_added_also_after_their_end(make_site, clock, tmp_path):
    def published():
        clock.advance(INTERVAL)
        return only(tmp_path).stats.pages

    sites = [make_site(figures_dir=tmp_path) for _ in range(2)]
    for site in sites:
        site.get()
    one, two = (site.cache.pages.figures for site in sites)
    refuse(one, "private", a=3, b=1)
    refuse(two, "private", a=2, c=4)
    assert published().not_stored_paths == {"private": {"/a": 5, "/c": 4, "/b": 1}}
    sites[0].cache.cache.close()
    refuse(two, "private", c=7)
    refuse(two, "made up", d=1)
    two.variants_full("/a", "user-agent")
    for _ in range(2):
        shown = published()
        assert shown.not_stored_paths == {"private": {"/c": 11, "/a": 5, "/b": 1}, "other": {"/d": 1}}
        assert shown.full_variants == {"user-agent": {"/a": 1}}
