"""Each pair of values of two arguments occurs in the cases that run, and no combination that a test leaves out."""

from itertools import combinations, product
from types import SimpleNamespace

import pytest

from tests.pairs import covering, select

VALUES = {"site": "abc", "mode": "pqrst", "flow": "uvwxy", "way": "12"}
PRODUCT = [dict(zip(VALUES, values, strict=True)) for values in product(*VALUES.values())]
WITHOUT_SOME = [
    case for case in PRODUCT if (case["site"], case["mode"]) != ("b", "q") and case["flow"] + case["way"] != "y2"
]


def run(cases, **names):
    return [cases[number] for number in covering(cases, **names)]


def pairs(cases, names=VALUES):
    return {pair for case in cases for pair in combinations([(name, case[name]) for name in names], 2)}


@pytest.mark.parametrize("cases", [PRODUCT, WITHOUT_SOME], ids=["product", "without some"])
def test_each_pair_that_is_possible_occurs_and_few_cases_run(cases):
    chosen = run(cases)
    assert pairs(chosen) == pairs(cases)
    # No fewer contain each pair of the two longest arguments.
    assert 25 <= len(chosen) <= 35
    assert chosen == run(cases)


@pytest.mark.parametrize("cases", [PRODUCT, WITHOUT_SOME], ids=["product", "without some"])
def test_the_first_value_runs_in_full_and_the_others_in_pairs(cases):
    chosen = run(cases, full=["site"])
    assert [case for case in chosen if case["site"] == "a"] == [case for case in cases if case["site"] == "a"]
    assert pairs(chosen) == pairs(cases)
    # Of the others, only the pairs with a site are missing.
    assert len([case for case in chosen if case["site"] != "a"]) <= 11


def test_only_the_pairs_of_the_named_arguments_must_occur():
    chosen = run(PRODUCT, full=["site", "mode"], of=["site", "flow"])
    assert pairs(chosen, ["site", "flow"]) == pairs(PRODUCT, ["site", "flow"])
    assert len(chosen) == 5 * 2 + 2 * 5


def test_each_value_of_one_argument_occurs_once_more_and_the_other_values_alternate():
    others = [case for case in run(PRODUCT, full=["site"], of=["flow"]) if case["site"] != "a"]
    assert sorted(case["flow"] for case in others) == [*"uvwxy"]
    assert {case["site"] for case in others} == {*"bc"}
    assert {case["mode"] for case in others} == {*"pqrst"}


def test_tests_without_the_marker_keep_all_cases_and_those_with_it_keep_values_that_are_equal_apart():
    def item(test, *values, **names):
        spec = SimpleNamespace(params=dict(enumerate(values)))
        marker = SimpleNamespace(kwargs=names) if test == "marked" else None
        return SimpleNamespace(parent=0, originalname=test, callspec=spec, get_closest_marker=lambda name: marker)

    every = [*product((1, True), ([],), "ab")]
    items = [item(test, *values) for test in ("marked", "unmarked") for values in every]
    assert len(select(items)) == 0
    assert [each.originalname for each in items] == ["marked"] * 4 + ["unmarked"] * 4
