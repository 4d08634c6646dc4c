"""Makes a block of rules and options of the results of a rehearsal, and a verdict.

A rule is recommended for a view if some answers of the view were compared with those to nobody, as if the rule had been
applied, and none of them differed. The lines are in the order of the visits that need them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from wheelcache.pages.needs import (
    IGNORE_QUERY,
    IGNORE_READS_BY,
    MAX_BODY,
    TTL,
    WITHOUT_COOKIES,
    Need,
    Obstacle,
    parsed,
)
from wheelcache.pages.patterns import covers
from wheelcache.pages.rehearsing import GAINS, LONGEST_URL, NEEDS, OPTIONS, PROVED, REFUTED
from wheelcache.watch.rehearsals import Outcome

NO_OPTIONS: Final[Mapping[str, Any]] = {
    **{name: [] for name in ("rules", "ignore_query", "ignore_reads_by", "session_cookies")},
    "max_body": 0,
}

NONE: Final = Outcome(0, 0.0, {})

BYPASS: Final = "bypass()"
ALL_TRACKING: Final = "*TRACKING"

LEAST_PROVED: Final = 5
"""The equal comparisons that a rule needs. First visits of several visitors can be equal where later ones are not."""

_NAMES: Final = re.compile(r'"([^"]*)"')
_CUT_ESCAPE: Final = re.compile(r"%.?$")


class Trial(NamedTuple):
    """The visits of a view with the same obstacles.

    Attributes:
        row: see ``needs.Obstacles``.
        visits, gains, proved, refuted: see ``rehearsing``.
        url: an example.
        difference: an example of an answer that differed from those to nobody; None without any.
    """

    view: str
    row: str
    pattern: str
    needs: tuple[Need, ...]
    stuck: Obstacle | None
    visits: int
    gains: int
    proved: int
    refuted: int
    url: str
    difference: Mapping[str, Any] | None

    @property
    def is_safe(self) -> bool:
        """Whether the rules that the page needs can be recommended."""
        has_pattern = bool(self.pattern) or not {TTL, WITHOUT_COOKIES}.intersection(each.kind for each in self.needs)
        return self.stuck is None and has_pattern and self.proved >= LEAST_PROVED and not self.refuted


class Line(NamedTuple):
    """A line of the block.

    Attributes:
        option: the option that it belongs to.
        code: an item of the option, as Python code; for a rule, the call that makes it.
        visits: the visits that need it; None if it is set already.
        note: a remark; "" without any.
        pattern: the pattern of a rule; "" for other options.
    """

    option: str
    code: str
    visits: int | None
    note: str = ""
    pattern: str = ""

    @property
    def item(self) -> str:
        return f"({_quoted(self.pattern)}, {self.code})" if self.pattern else self.code


class Advice(NamedTuple):
    """The advice of a rehearsal.

    Attributes:
        lines: those of the block; none if nothing is to be changed.
        safe: the trials that would be won.
        trials: all of them.
        sessions: the cookies of sessions.
    """

    lines: list[Line]
    safe: list[Trial]
    trials: list[Trial]
    sessions: list[str]

    @property
    def gains(self) -> int:
        """The visits that would have been hits with the block, in addition to those that would have been without."""
        return sum(each.gains for each in self.safe)


def trials_in(outcomes: Mapping[tuple[str, str], Outcome]) -> list[Trial]:
    """Return the trials, those of most visits first."""
    found = []
    for (view, kind), outcome in outcomes.items():
        name, _, row = kind.partition(": ")
        if name != NEEDS:
            continue
        pattern, needs, stuck = parsed(row)
        gains, proved, refuted = (outcomes.get((view, f"{each}: {row}"), NONE) for each in (GAINS, PROVED, REFUTED))
        found.append(
            Trial(
                view,
                row,
                pattern,
                needs,
                stuck,
                visits=outcome.number,
                gains=gains.number,
                proved=proved.number,
                refuted=refuted.number,
                url=outcome.example.get("url", ""),
                difference=refuted.example if refuted.number else None,
            )
        )
    return sorted(found, key=lambda each: -each.visits)


def advice_of(outcomes: Mapping[tuple[str, str], Outcome]) -> Advice:
    """Return the advice.

    Args:
        outcomes: by view and kind.
    """
    options = {**NO_OPTIONS, **(outcomes["", OPTIONS].example if ("", OPTIONS) in outcomes else {})}
    trials = trials_in(outcomes)
    wrong = [
        (outcome.example.get("pattern") or _exact_pattern(outcome.example.get("url", "")), outcome.number)
        for (_, kind), outcome in outcomes.items()
        if kind == "wrong" and outcome.number
    ]
    safe = [each for each in trials if each.is_safe]
    left_out = {
        pattern: f"{_answers(number)} {'was' if number == 1 else 'were'} wrong" for pattern, number in wrong if pattern
    }
    while True:
        safe = [each for each in safe if not any(covers(pattern, each.pattern) for pattern in left_out)]
        unsafe = [each for each in trials if each.refuted and each.pattern and each.pattern not in left_out]
        rules = [*_rules_for(safe, options), *((pattern, code) for pattern, code in options["rules"])]
        found = [each for each in unsafe if _has_all(each, safe, rules, options)]
        if not found:
            break
        left_out |= {each.pattern: f"{_answers(each.refuted)} differed" for each in found}
    lines = [*_lines(safe, options)]
    bypasses = [Line("rules", BYPASS, 0, note, pattern) for pattern, note in left_out.items()]
    return Advice(_complete([*bypasses, *lines], options), safe, trials, options["session_cookies"])


def _answers(number: int) -> str:
    return f"{number:,} compared answer{'' if number == 1 else 's'}"


def _exact_pattern(url: str) -> str:
    """Return the pattern of a single page, for applications whose views are unknown."""
    path, has_query, _ = url.partition("?")
    if len(url) < LONGEST_URL or has_query:
        return unquote(path)
    # The end is cut off, perhaps within a character.
    return unquote(_CUT_ESCAPE.sub("", path), errors="ignore") + "*"


def _has_all(trial: Trial, safe: Iterable[Trial], rules: Iterable[tuple[str, str]], options: Mapping[str, Any]) -> bool:
    """Return whether the rules of other pages would also store that of a trial."""
    given = {need for each in safe for need in each.needs if need.kind not in (TTL, WITHOUT_COOKIES)}
    given |= {Need(IGNORE_READS_BY, by) for by in options["ignore_reads_by"]}
    of_page = [code for pattern, code in rules if pattern.startswith("/") and covers(pattern, trial.pattern)]
    for need in trial.needs:
        if need.kind == TTL:
            has = any(code.startswith("ttl(") for code in of_page)
        elif need.kind == WITHOUT_COOKIES:
            has = any(need.value in _NAMES.findall(code) for code in of_page)
        else:
            has = need in given
        if not has:
            return False
    return True


def _rules_for(trials: Iterable[Trial], options: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """Return the rules for trials, each a pattern and the code of the rule, with the visits that need it."""
    lifetimes: Counter[str] = Counter()
    losing: Counter[str] = Counter()
    lost: dict[str, set[str]] = defaultdict(set)
    for each in trials:
        kinds = {need.kind for need in each.needs}
        if TTL in kinds:
            lifetimes[each.pattern] += each.visits
        if WITHOUT_COOKIES in kinds:
            losing[each.pattern] += each.visits
            lost[each.pattern] |= {need.value for need in each.needs if need.kind == WITHOUT_COOKIES}
    for pattern in sorted(lifetimes, key=len, reverse=True):
        general = next((each for each in lifetimes if each != pattern and covers(each, pattern)), None)
        if general is not None:
            lifetimes[general] += lifetimes.pop(pattern)
    # Of the rules of a kind, the first that matches counts.
    for pattern, names in lost.items():
        for other, code in [*options["rules"], *((each, _losing(of)) for each, of in lost.items())]:
            if code.startswith(WITHOUT_COOKIES) and covers(other, pattern):
                names |= {*_NAMES.findall(code)}
    found = {(pattern, "ttl(60)"): number for pattern, number in lifetimes.items()}
    return found | {(pattern, _losing(lost[pattern])): number for pattern, number in losing.items()}


def _losing(names: Iterable[str]) -> str:
    return f"without_cookies({', '.join(map(_quoted, sorted(names)))})"


def _quoted(text: str) -> str:
    """Return a literal of Python. Unlike ``json.dumps``, it keeps printable characters and escapes no character as two
    surrogates, which a pattern must not have."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else ascii(character)[1:-1]


def _lines(trials: Iterable[Trial], options: Mapping[str, Any]) -> Iterator[Line]:
    """Iterate over the new lines for trials."""
    trials = [*trials]
    rules = _rules_for(trials, options)
    for (pattern, code), number in rules.items():
        note = "these pages no longer set the cookie" if code.startswith(WITHOUT_COOKIES) else ""
        yield Line("rules", code, number, note, pattern)
    visits: Counter[Need] = Counter()
    proved: Counter[Need] = Counter()
    for each in trials:
        for need in each.needs:
            visits[need] += each.visits
            proved[need] += each.proved
    for need, number in visits.items():
        if need.kind == IGNORE_READS_BY:
            note = (
                f"safe if no page shows what it reads; {proved[need]:,} reruns from another address gave the same page"
            )
            yield Line(IGNORE_READS_BY, _quoted(need.value), number, note)
        elif need.kind == IGNORE_QUERY:
            yield Line(IGNORE_QUERY, ALL_TRACKING, number)
    sizes = [int(need.value) for need in visits if need.kind == MAX_BODY]
    if sizes:
        number = sum(number for need, number in visits.items() if need.kind == MAX_BODY)
        yield Line(MAX_BODY, str(max(sizes)), number)


def _complete(lines: list[Line], options: Mapping[str, Any]) -> list[Line]:
    """Return the lines in their order, with those that are set already."""
    if not lines:
        return []
    used = {each.option for each in lines}
    losing = [each.pattern for each in lines if each.code.startswith(WITHOUT_COOKIES)]
    lines = sorted(lines, key=lambda each: (_generality(each, losing), -(each.visits or 0)))
    given = [Line("rules", code, None, pattern=pattern) for pattern, code in options["rules"]]
    given += [Line(IGNORE_READS_BY, _quoted(each), None) for each in options["ignore_reads_by"]]
    given += [Line(IGNORE_QUERY, _quoted(each), None) for each in options["ignore_query"]]
    return [*lines, *(each for each in given if each.option in used)]


def _generality(line: Line, patterns: list[str]) -> int:
    """Return how many other rules for cookies a rule for cookies would hide if it came first.

    Args:
        patterns: those of all rules for cookies.
    """
    if not line.code.startswith(WITHOUT_COOKIES):
        return 0
    return sum(covers(line.pattern, each) for each in patterns) - 1


def block_of(lines: list[Line], visits: int) -> str:
    """Return the block to paste: an import line, and arguments of ``page_cache`` or ``HTTPCache``; "" without lines.

    Args:
        visits: the number of all visits.
    """
    if not lines:
        return ""
    names = {each.code.partition("(")[0] for each in lines if each.pattern}
    names |= {"TRACKING" for each in lines if each.code == ALL_TRACKING}
    parts = [
        f"from wheelcache.pages import {', '.join(sorted(names, key=lambda name: (not name.isupper(), name)))}",
        "",
    ]
    if not names:
        parts.clear()
    parts.append("# In place of the options of the same name; keep the others.")
    by_option: dict[str, list[Line]] = defaultdict(list)
    for each in lines:
        by_option[each.option].append(each)
    for option, of_option in by_option.items():
        if option == MAX_BODY:
            parts.append(f"{option}={of_option[0].code},{_comment(of_option[0], visits)}")
            continue
        parts += [f"{option}=[", *(f"    {each.item},{_comment(each, visits)}" for each in of_option), "],"]
    return "\n".join(parts)


def _comment(line: Line, visits: int) -> str:
    if line.visits is None:
        return "  # set already"
    share = "" if not line.visits else f"{share_of(line.visits, visits)} of visits"
    return f"  # {': '.join(filter(None, [share, line.note]))}"


def share_of(part: int, whole: int) -> str:
    """Return a share in percent."""
    share = part / max(whole, 1)
    return "less than 1%" if 0 < share < 0.01 else f"{share:.0%}"
