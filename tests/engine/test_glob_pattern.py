"""Patterns match the same keys as in Redis."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from wheelcache.engine.glob_pattern import escaped, matcher


@pytest.mark.parametrize(
    ("pattern", "fitting", "other"),
    [
        ("", [""], ["a"]),
        ("*", ["", "a", "a\nb"], []),
        ("a*", ["a", "ab", "a*"], ["", "ba", "A"]),
        ("*a", ["a", "ba", "aa"], ["ab"]),
        ("a*b*c", ["abc", "a-b-b-c", "abcc"], ["acb", "ab", "abcd"]),
        ("a**b", ["ab", "a-b"], ["a"]),
        ("h?llo", ["hello", "h\nllo"], ["hllo", "heello"]),
        ("h[ae]llo", ["hello", "hallo"], ["hillo"]),
        ("h[^e]llo", ["hallo"], ["hello", "hllo"]),
        ("h[a-c]llo", ["hbllo"], ["hdllo", "h-llo"]),
        ("h[c-a]llo", ["hbllo"], ["hdllo"]),
        (r"[\]\-\\]", ["]", "-", "\\"], ["a"]),
        (r"a\*b", ["a*b"], ["axb", r"a\*b"]),
        (r"\a", ["a"], [r"\a"]),
        ("a\\", ["a\\"], ["a"]),
        ("[", [], ["", "["]),
        ("[ab", ["a", "b"], ["[ab", ""]),
        ("[]", [], ["", "]", "a"]),
        ("[^]", ["a", "]"], [""]),
        ("[a-]", ["]", "^", "a"], ["-", "b"]),
        ("a.b", ["a.b"], ["axb"]),
        ("user:7:*", ["user:7:", "user:7:x"], ["user:71:", "user:7"]),
        ("[[&&~~||]", ["[", "&", "~", "|"], ["a"]),
        ("?", ["Ä", "😀"], ["ÄÄ"]),
    ],
)
def test_a_pattern_matches_the_whole_of_a_text(pattern, fitting, other):
    matches = matcher(pattern)
    assert [text for text in (*fitting, *other) if matches(text)] == fitting


@pytest.mark.parametrize("wrong", [None, 1, b"a*", ["a"]])
def test_a_pattern_that_is_no_string_is_an_error(wrong):
    with pytest.raises(TypeError, match="pattern must be a string, not"):
        matcher(wrong)


@given(st.text("*?[]^\\-ab"), st.text("*?[]^\\-ab"))
def test_an_escaped_literal_matches_itself_alone(literal, text):
    matches = matcher(escaped(literal))
    assert matches(literal)
    assert bool(matches(text)) == (text == literal)


def test_many_stars_take_no_longer_than_a_few():
    """With backtracking, this would run for longer than any test may."""
    assert not matcher("*a" * 60 + "*b")("a" * 4000)


@pytest.mark.servers
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example("[a-]", "]")
@example("[^", "a")
@given(st.text("*?[]^\\-abc", max_size=8), st.text("*?[]^\\-abc", min_size=1, max_size=6))
def test_a_pattern_matches_as_in_redis(shared_redis, pattern, text):
    client = shared_redis.client()
    client.flushall()
    client.set(text, 1)
    assert bool(matcher(pattern)(text)) == bool(client.keys(pattern))
