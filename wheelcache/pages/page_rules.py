"""The site's rules for its pages, in one place:

>>> rules = [("/static-pages/*", ttl(3600)), ("/account/*", bypass()), ("api.example.com/*", grace(30))]

A pattern that begins with a slash applies to every host. Others begin with a host: ``*``, ``localhost``, an address in
brackets, or a name with a dot or a port. Another host has two slashes before it: ``//intranet/*``. ``*`` matches any
text, also with slashes, and no other character is special. Of the rules of each kind, the first that matches counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from wheelcache.engine import options


@dataclass(frozen=True, slots=True)
class PageRule:
    """What the rules say about a page.

    Attributes:
        ttl: the lifetime for this cache, in seconds, instead of that of the headers; None to use theirs.
        value_cookies: the cookies that say nothing about the visitor, such as the one of the language: see ``ttl``.
        bypasses: whether its requests bypass the cache.
        grace, fail_safe: the seconds of the options of these names for the page; None for those of the cache.
        lost_cookies: the cookies that the application neither receives nor sets; None for no such rule.
    """

    ttl: float | None = None
    value_cookies: frozenset[bytes] = frozenset()
    bypasses: bool = False
    grace: float | None = None
    fail_safe: float | None = None
    lost_cookies: frozenset[bytes] | None = None

    @property
    def source(self) -> str:
        """The call that makes the rule, as Python code."""
        if self.lost_cookies is not None:
            return f"without_cookies({', '.join(json.dumps(name.decode()) for name in sorted(self.lost_cookies))})"
        if self.ttl is not None:
            names = [name.decode() for name in sorted(self.value_cookies)]
            return f"ttl({_number(self.ttl)}, cookies={json.dumps(names)})" if names else f"ttl({_number(self.ttl)})"
        if self.fail_safe is not None:
            return f"fail_safe({_number(self.fail_safe)})"
        return "bypass()" if self.grace is None else f"grace({_number(self.grace)})"


def _number(seconds: float) -> str:
    return repr(seconds).removesuffix(".0")


NO_RULE: Final = PageRule()


def ttl(seconds: float, *, cookies: Iterable[str] = ()) -> PageRule:
    """Set the lifetime of pages for this cache, instead of that of their headers.

    It is for statuses 200, 203, 204, 300, 301, 308, 404 and 410. Responses that must not be stored are not stored, and
    a page with ``no-cache`` is validated before every use. Browsers receive the headers of the page unchanged.

    A page without a lifetime of its own gets none from this rule if it depends on a cookie, such as that of a session,
    and the visitor has this cookie. Other visitors get the page.

    Args:
        cookies: the cookies that are mere values, such as ``["django_language", "theme"]``. Visitors who have them get
            pages that depend on them.
    """
    names = options.names("cookies in ttl()", cookies, "a list of names of cookies, such as 'django_language'")
    return PageRule(
        ttl=options.seconds("the number in ttl()", seconds), value_cookies=frozenset(name.encode() for name in names)
    )


def bypass() -> PageRule:
    """Let requests bypass the cache."""
    return PageRule(bypasses=True)


def grace(seconds: float) -> PageRule:
    """Set the time after the lifetime of a page during which visitors get it while it is renewed.

    A page that has ``stale-while-revalidate`` keeps it. ``must-revalidate`` and ``proxy-revalidate`` still forbid stale
    pages.
    """
    return PageRule(grace=options.seconds_or_zero("the number in grace()", seconds))


def fail_safe(seconds: float) -> PageRule:
    """Set the time after the lifetime of a page during which visitors get it if the application fails.

    A page that has ``stale-if-error`` keeps it: see ``grace``.
    """
    return PageRule(fail_safe=options.seconds_or_zero("the number in fail_safe()", seconds))


def without_cookies(*names: str) -> PageRule:
    """Let pages lose cookies: the application does not receive them, and the cookies that it sets are not sent.

    So a page that would depend on them is the same for all visitors. Name only cookies that these pages do not need: a
    list of recently viewed products, for example, no longer contains the products of these pages. Requests with unsafe
    methods are not changed, and neither are the responses with ``private`` or ``no-store``.
    """
    accepted = "names of cookies, such as 'history'"
    found = options.names("the names in without_cookies()", names, accepted, is_cookie)
    if not found:
        raise ValueError(f"without_cookies() must have {accepted}")
    return PageRule(lost_cookies=frozenset(name.encode() for name in found))


def is_cookie(name: str) -> bool:
    """Return whether ``without_cookies`` accepts the name of a cookie."""
    return bool(_COOKIE.fullmatch(name))


class PageRules:
    """The rules of a site.

    Attributes:
        given: the pairs of patterns and rules.
        rules: the matchers of the host and the path, and what the rule says, in the order of the rules.

    Raises:
        TypeError, ValueError: if a rule is invalid; the message names it.
    """

    def __init__(self, rules: Iterable[tuple[str, PageRule]]) -> None:
        self.given = [*rules]
        self.rules = [_checked(f"rules[{index}]", rule) for index, rule in enumerate(self.given)]

    def of(self, host: str, path: str) -> PageRule:
        """Return what the rules say about a page.

        Args:
            host: with the port if the request names one.
            path: decoded, one character for each byte, as in the key of the page.
        """
        host = host.lower()
        found = [rule for of_host, of_path, rule in self.rules if of_path(path) and of_host(host)]
        if not found:
            return NO_RULE
        lifetime = next((rule for rule in found if rule.ttl is not None), NO_RULE)
        return PageRule(
            ttl=lifetime.ttl,
            value_cookies=lifetime.value_cookies,
            bypasses=any(rule.bypasses for rule in found),
            grace=next((rule.grace for rule in found if rule.grace is not None), None),
            fail_safe=next((rule.fail_safe for rule in found if rule.fail_safe is not None), None),
            lost_cookies=next((rule.lost_cookies for rule in found if rule.lost_cookies is not None), None),
        )

    def lost_cookies(self) -> frozenset[bytes]:
        """Return the cookies that any page loses."""
        return frozenset().union(*(rule.lost_cookies or () for _, _, rule in self.rules))


ACCEPTED: Final = 'such as ("/news/*", ttl(60)), ("/account/*", bypass()) or ("api.example.com/*", grace(30))'

Matcher = Callable[[str], bool]


def listed(option: str, given: Any) -> list[Any]:
    """Check that the rules are in a list or another iterable. Return a list."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise TypeError(f"{option} must be a list of pairs, {ACCEPTED}, not {options.shown(given)}")
    return list(given)


_COOKIE: Final = re.compile(r"[!#-'*+.^-z|~0-9A-Z-]+")
_HOST: Final = re.compile(r"(\[[0-9a-f:.*]+\]|[^\[\]:@]+)(:[0-9*]+)?")


def _checked(name: str, given: Any) -> tuple[Matcher, Matcher, PageRule]:
    """Return the matchers of the host and the path of a rule, and what it says."""
    if not (isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[0], str)):
        raise TypeError(f"{name} must be a pair of a pattern and a rule, {ACCEPTED}, not {options.shown(given)}")
    pattern, rule = given
    if not isinstance(rule, PageRule):
        accepted = "ttl(seconds), bypass(), grace(seconds), fail_safe(seconds) or without_cookies(name)"
        raise TypeError(f"{name}, for {options.shown(pattern)}, must have {accepted}, not {options.shown(rule)}")
    host, slash, path = pattern.removeprefix("//").partition("/")
    if not slash or pattern.startswith("///") or "://" in pattern or "?" in pattern:
        raise ValueError(
            f"{name} must have a pattern of a path, or of a host and a path, without scheme and query: {ACCEPTED}, "
            f"not {options.shown(pattern)}"
        )
    if not (pattern.startswith("/") or _is_host(host.lower())):
        raise ValueError(
            f"{name} must have a pattern that begins with a slash or a host, not {options.shown(pattern)}: "
            f"{options.shown('/' + pattern)} is a path, and {options.shown('//' + pattern)} begins with the host "
            f"{options.shown(host)}"
        )
    return _matcher(host.lower() or "*"), _matcher(slash + path), rule


def _is_host(text: str) -> bool:
    """Return whether the text before the first slash of a pattern looks like a host, not like a directory."""
    match = _HOST.fullmatch(text)
    return match is not None and (
        text in ("*", "localhost") or text[0] == "[" or bool(match[2]) or "." in text.strip(".")
    )


def matches(pattern: str, text: str) -> bool:
    """Return whether a path, one character for each byte, matches the pattern of a rule for every host."""
    return _matcher(pattern)(text)


def _matcher(pattern: str) -> Matcher:
    """Return a function that returns whether a text matches a pattern.

    The first place of the part between two stars is as good as any later one, so a text is read once.
    """
    # Keys have one character for each byte.
    first, *others = pattern.encode().decode("latin-1").split("*")
    if not others:
        return first.__eq__
    *middle, last = others

    def matches(text: str) -> bool:
        if not (text.startswith(first) and text.endswith(last)):
            return False
        start, end = len(first), len(text) - len(last)
        for part in middle:
            start = text.find(part, start, end)
            if start < 0:
                return False
            start += len(part)
        return start <= end

    return matches
