"""The site's rules for its pages."""

from time import thread_time

import pytest

from wheelcache.pages import HTTPCache, bypass, fail_safe, grace, ttl, without_cookies
from wheelcache.pages.page_rules import NO_RULE, PageRule, PageRules, listed


@pytest.mark.parametrize(
    ("pattern", "host", "path", "matches"),
    [
        ("/news/*", "a.example", "/news/", True),
        ("/news/*", "a.example", "/news", False),
        ("/news", "a.example", "/news", True),
        ("/*.html", "a.example", "/x/y.html", True),
        ("/*.html", "a.example", "/x/y.html\n", False),
        ("/*/edit/*", "a.example", "/x/y/edit/", True),
        ("/[a]+.x", "a.example", "/[a]+.x", True),
        ("/[a]+.x", "a.example", "/aa-x", False),
        ("/café", "a.example", "/café".encode().decode("latin-1"), True),
        ("*.example/*", "a.example", "/x", True),
        ("*.example/private", "a.org", "/b.example/private", False),
        ("a.example/*", "a.example.org", "/", False),
        ("a.example:8000/*", "a.example:8000", "/", True),
        ("*/x", "a.example", "/x", True),
        ("/*a*b", "a.example", "/ab", True),
        ("/a*ab", "a.example", "/ab", False),
        ("/*ab*b*", "a.example", "/ab", False),
        ("*//x", "a.example", "//x", True),
        ("LocalHost:8000/x", "localhost:8000", "/x", True),
        ("[::1]/x", "[::1]", "/x", True),
        ("//intranet/*", "intranet", "/x", True),
        ("//intranet/*", "a.example", "//intranet/x", False),
    ],
)
def test_a_pattern_matches_the_path_or_the_host_and_the_path(pattern, host, path, matches):
    assert PageRules([(pattern, bypass())]).of(host, path).bypasses is matches


def test_of_each_kind_the_first_matching_rule_counts():
    rules = [("/a/*", grace(0)), ("/a/b/*", ttl(10)), ("/a/*", ttl(20)), ("/a/b/c", bypass()), ("/*", grace(30))]
    found = PageRules(rules)
    assert found.of("h", "/a/b/x") == PageRule(ttl=10.0, grace=0.0)
    assert found.of("h", "/a/x") == PageRule(ttl=20.0, grace=0.0)
    assert found.of("h", "/a/b/c") == PageRule(ttl=10.0, bypasses=True, grace=0.0)
    assert found.of("h", "/x") == PageRule(grace=30.0)
    assert PageRules([]).of("h", "/x") == NO_RULE


WRONG = ["/y", ("/x",), (5, ttl(1)), ("/x", 60)]


@pytest.mark.parametrize("given", [5, "/x", {"/x": ttl(1)}, *([("/z", ttl(1)), each] for each in WRONG)])
def test_an_invalid_rule_is_named(given):
    with pytest.raises((TypeError, ValueError), match=r"^rules(\[1\].*)? must (be|have) "):
        PageRules(listed("rules", given))


@pytest.mark.parametrize(
    "pattern",
    [
        *("news/*", "http:/x", "[::1/x", "user@a.example/x", ".../x", "api*/x"),
        *("///x", "//intranet", "https://example.com/", "/x?page=*", "example.com", ""),
    ],
)
def test_an_invalid_pattern_is_named(pattern):
    with pytest.raises(ValueError, match=r"^rules\[0\] must have .*pattern"):
        PageRules([(pattern, ttl(1))])


@pytest.mark.parametrize(
    ("make", "values", "message"),
    [
        *((ttl, [value], r"the number in ttl\(\) must be") for value in (0, "60", None, float("inf"))),
        *((make, [-1], r"the number in .*\(\) must be a number of seconds") for make in (grace, fail_safe)),
        *(
            (lambda names: ttl(60, cookies=names), [names], r"cookies in ttl\(\) must be a list")
            for names in ("a", [5])
        ),
        *((without_cookies, names, r"(the names in )?without_cookies\(\) must ") for names in ((), ("a b",), (5,))),
    ],
)
def test_an_invalid_argument_of_a_rule_is_named(make, values, message):
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        make(*values)


def test_a_rule_that_removes_the_cookie_of_a_session_is_refused():
    with pytest.raises(ValueError, match="rules must not name the cookie of a session: 'sid'"):
        HTTPCache(rules=[("/*", without_cookies("a", "sid"))], session_cookies=["sid"])


@pytest.mark.parametrize(
    "rule", [ttl(60), ttl(0.5, cookies=["b", "a"]), grace(0), fail_safe(1), bypass(), without_cookies("b", "a")]
)
def test_a_rule_shows_the_code_that_makes_it(rule):
    assert eval(rule.source) == rule


@pytest.mark.alone
def test_matching_is_linear_in_the_path():
    found = PageRules([("/*a*a*a*a*a*a*a*a*b", bypass()), ("*.*.*.*.*.x/*ab*ab*ab", bypass())])
    before = thread_time()
    assert not found.of("." * 100_000, "/" + "a" * 100_000).bypasses
    assert thread_time() - before < 5
