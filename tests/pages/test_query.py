"""The query that the application and the key of a page see."""

import pytest

from wheelcache.pages.keys import LONGEST_URL
from wheelcache.pages.query import TRACKING, QueryRules, parameter_names


@pytest.mark.parametrize(
    ("query", "normalized"),
    [
        ("", ""),
        ("page=2", "page=2"),
        ("utm_source=x", ""),
        ("page=2&utm_source=x&q=%20+&fbclid=1&gclid", "page=2&q=%20+"),
        ("utm%5Fsource=x&%67clid=1&a=utm_source", "a=utm_source"),
        ("Utm_source=x&xutm_source=1&gclidx=1&utm", "Utm_source=x&xutm_source=1&gclidx=1&utm"),
        ("a=1;gclid=2&&gclid=1&", "a=1;gclid=2&&"),
        ("größe=1&a=1".encode().decode("latin-1"), "a=1"),
        ("gr%C3%B6%C3%9Fe=1&a=1", "a=1"),
        ("my+ref=1&my%20ref=2&my%2Bref=3", "my%2Bref=3"),
    ],
)
def test_ignored_parameters_are_removed_and_the_others_stay_as_they_are(query, normalized):
    assert QueryRules([*TRACKING, "größe", "my ref"]).normalized(query) == normalized


@pytest.mark.parametrize("ignored", [5, None, "utm_*", b"ref", ["a", 5], [""], ["*"], ["u*m"], ["a**"], [b"a"]])
def test_invalid_names_are_refused(ignored):
    with pytest.raises((TypeError, ValueError), match=r"^ignore_query must be a list of parameter names"):
        parameter_names("ignore_query", ignored)


def test_the_tracking_parameters_are_valid_and_each_is_listed_once():
    assert parameter_names("ignore_query", TRACKING) == list(TRACKING)
    assert len(set(TRACKING)) == len(TRACKING)


@pytest.mark.parametrize("piece", ["%", "b&a&", "%61=&", "utm_&", "+"])
def test_the_query_of_a_long_url_is_not_parsed(piece):
    query = piece * (LONGEST_URL + 1)
    assert QueryRules(TRACKING).normalized(query) is query
