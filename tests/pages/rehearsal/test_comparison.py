"""Which differences of two answers are noise, and when a comparison is certain. No site is needed for this."""

import base64
import gzip
import json
import random
from itertools import count

import pytest

from tests.pages.rehearsal.conftest import LINES
from wheelcache.pages.comparison import LATER, MOST_RERUNS, PAUSE, SOON, Comparison
from wheelcache.pages.rehearsal import Answer, Kind, answer_of, compare

numbers = count()


def nonce():
    return base64.b64encode(random.randbytes(16)).decode()


def with_clock(body):
    return f"<b nonce={nonce()}></b>{LINES}<i>{next(numbers)}</i>{body}<i>{next(numbers)}</i>"


def shuffled(*letters):
    return f"<ul><li>{'</li><li>'.join(random.sample(letters, len(letters)))}</li></ul>"


PERSONAL = {
    "a name": lambda name: f"{LINES}<p>Hello {name}</p>",
    "a name and a clock in one line": lambda name: f"<p>Hello {name}, {next(numbers)}</p>",
    "a name between two nonces": lambda name: with_clock(LINES * 50 + name + LINES * 50),
    "a missing line": lambda name: LINES if name != "you" else LINES.replace("<li>one</li>\n", ""),
    "JSON": lambda name: json.dumps({"at": next(numbers), "name": name}),
    "a script": lambda name: f"<script nonce={nonce()}>var at = {next(numbers)}, name = '{name}'</script>",
    "space": lambda name: f"{LINES}<pre>{' ' * (1 + (name != 'you'))}</pre>",
}
NOISE = {
    "nothing": lambda: LINES,
    "nonces": lambda: f"{LINES}<i>{nonce()}</i>{LINES}<b nonce={nonce()}>{LINES}",
    "a shuffled list": lambda: shuffled(*"abcdefgh"),
    "a sample": lambda: "<ul>\n" + "".join(f"<li>{each}</li>\n" for each in random.sample(range(20), 4)),
    "one of two": lambda: f"{LINES}<p>{random.choice(['tea', 'coffee'])}</p>",
}


def answer(text, head=b"", status=200, cookies=b""):
    return Answer(status, cookies, head, text.encode())


@pytest.mark.parametrize("page", PERSONAL)
def test_a_word_that_only_the_visitor_gets_is_wrong(page):
    make = PERSONAL[page]
    for _ in range(3):
        stored, visitor = answer(make("you")), answer(make("ada"))
        reruns = [answer(make("you")) for _ in range(MOST_RERUNS)]
        found = compare(stored, visitor, reruns, is_keyed=False)
        assert (found.kind, found.stored != found.visitor) == (Kind.WRONG, True)
        # The visitor for whom a page was made got this page.
        found = compare(visitor, visitor, reruns, is_keyed=False)
        assert (found.kind, found.stored != found.visitor) == (Kind.WRONG, True)


@pytest.mark.parametrize("page", NOISE)
def test_clocks_nonces_and_random_lists_are_not_wrong(page):
    for _ in range(20):
        stored, visitor, *reruns = (answer(NOISE[page]()) for _ in range(2 + MOST_RERUNS))
        assert compare(stored, visitor, reruns, is_keyed=False).kind in (Kind.NOISE, Kind.OUTDATED)


@pytest.mark.parametrize(("is_keyed", "kind"), [(False, Kind.OUTDATED), (True, Kind.WRONG)])
def test_an_earlier_state_is_outdated_but_wrong_for_a_page_of_a_cookie(is_keyed, kind):
    found = compare(answer(f"{LINES}old"), answer(f"{LINES}new"), [answer(f"{LINES}new")] * 2, is_keyed=is_keyed)
    assert (found.kind, found.line, found.stored, found.visitor) == (kind, 7, "old", "new")


@pytest.mark.parametrize(
    "text", ["12:0{}", "9:0{}:59", "2026-11-26 12:0{}:00", "2026-11-2{}", "17956964{}0", "2026-11-26T12:0{}Z"]
)
def test_words_that_look_like_times_are_known_as_such(text):
    one, two, three = (answer(f"<p>at {text.format(number)}</p>") for number in (1, 2, 3))
    assert compare(one, two, [three] * 2, is_keyed=False).is_time
    assert not compare(one, answer(f"<p>at {text.format(2)}, ada</p>"), [three] * 2, is_keyed=False).is_time
    assert not compare(answer("a b"), answer("a  b"), [answer("a b")] * 2, is_keyed=False).is_time


HEADS = {
    "another value": (b"status 200\nx-user: -", b"status 200\nx-user: ada", ("x-user", "-", "ada")),
    "one more": (b"status 200", b"status 200\nlocation: /x", ("location", "(none)", "/x")),
    "the status first": (b"status 200\na: 1", b"status 404\na: 2", ("status", "200", "404")),
}


@pytest.mark.parametrize("head", HEADS)
def test_a_header_that_differs_is_named_with_both_values(head):
    stored, visitor, expected = HEADS[head]
    found = compare(answer("a", stored), answer("a", visitor), [answer("a", stored)] * 2, is_keyed=False)
    assert (found.kind, found.line) == (Kind.WRONG, 0)
    assert (found.header, found.stored, found.visitor) == expected


def test_only_headers_that_visitors_notice_are_compared():
    headers = [(b"date", b"x"), (b"etag", b""), (b"x-user", b" ada "), (b"set-cookie", b"b="), (b"set-cookie", b"a=")]
    found = answer_of(200, headers, b"body", ignored=frozenset([b"a"]), most=100)
    assert found == Answer(200, b"b", b"status 200\nx-user: ada", b"body")


def test_the_tokens_of_the_visitor_are_blank():
    headers = [(b"content-encoding", b"gzip"), (b"x-token", b"secret")]
    found = answer_of(200, headers, gzip.compress(b"a secret"), ignored=frozenset(), most=100, tokens=[b"secret"])
    assert found == Answer(200, b"", b"status 200\nx-token: ------", b"a ------")


def test_comparisons_take_bounded_time_and_memory():
    texts = ["".join(f"{number + 100_000 * factor} \n\n" for number in range(20_000)) for factor in (1, 2, 3, 4)]
    answers = [*map(answer, texts)]
    assert compare(answers[0], answers[1], answers[2:], is_keyed=False).kind is Kind.NOISE
    gzipped = [(b"content-encoding", b"gzip")]
    bomb = gzip.compress(bytes(1_000_000))
    assert len(answer_of(200, gzipped, bomb, ignored=frozenset(), most=1000).body) == 1000
    assert answer_of(200, gzipped, b"not gzip", ignored=frozenset(), most=1000).body == b"not gzip"


def test_two_words_in_place_of_one_are_noise_only_if_reruns_have_as_many():
    """A sample of words has another length each time; a name of two words that only the visitor has is no sample."""
    one, two, three = (answer(f"<p>by {'x ' * number}end</p>") for number in (1, 2, 3))
    assert compare(two, two, [one, three], is_keyed=False).kind is Kind.NOISE
    assert compare(one, answer("<p>by x y end</p>"), [one, one], is_keyed=False).kind is Kind.WRONG


COURSES = {
    # The answer to the visitor, those of the reruns, the pauses before these, and the counts: outcomes and corrections.
    "as stored": ("a", [], [], ["equal"]),
    "a number": ("b", ["c", "d"], [SOON, PAUSE], ["noise"]),
    "a page of the visitor": ("b", 7 * ["a"], [SOON, PAUSE, 0, 0, 0, 0, LATER], ["wrong"]),
    "a clock of minutes": ("b", [*6 * ["c"], "d"], [SOON, PAUSE, 0, 0, 0, 0, LATER], ["wrong", "noise, not wrong"]),
    "a failure after a minute": ("b", [*6 * ["a"], "!"], [SOON, PAUSE, 0, 0, 0, 0, LATER], ["wrong"]),
    "a failure": ("b", ["a", "!"], [SOON, PAUSE], ["unclear"]),
    "an error for all but the visitor": ("b", ["403"], [SOON], ["unclear"]),
    "an error for all": ("403", ["403", "403"], [SOON, PAUSE], ["outdated"]),
    "a redirect of all but the page": ("302", ["302", "302"], [SOON, PAUSE], ["outdated"]),
    "a time of the visitor": ("12:01", 3 * ["12:02"], [SOON, PAUSE, LATER], ["wrong"]),
    "a clock": ("12:01", ["12:02", "12:02", "12:03"], [SOON, PAUSE, LATER], ["noise"]),
    "a time, and a failure after a minute": ("12:01", ["12:02", "12:02", "!"], [SOON, PAUSE, LATER], ["unclear"]),
}


class Course:
    """A comparison whose reruns the test answers."""

    def __init__(self, stored, *, repeated=None, is_new=False):
        self.pauses, self.waiting, self.counts, self.ended = [], [], [], []
        self.comparison = Comparison(
            answer(stored),
            is_keyed=False,
            is_new=is_new,
            rerun=lambda pause, heard, size: (self.pauses.append(pause), self.waiting.append(heard)),
            repeat=None if repeated is None else lambda pause, heard, size: heard(self.answer(repeated)),
            report=lambda found, former: self.counts.append(
                found.kind.value + ("" if former is None else f", not {former.kind.value}")
            ),
            end=lambda: self.ended.append(True),
        )

    @staticmethod
    def answer(text):
        return "the run failed" if text == "!" else answer(text, status=int(text) if text in ("302", "403") else 200)


@pytest.mark.parametrize("course", COURSES)
def test_reruns_follow_until_the_outcome_is_certain(course):
    visitor, reruns, pauses, counts = COURSES[course]
    found = Course("12:00" if ":" in visitor else "a")
    found.comparison.begin(found.answer(visitor))
    for text in reruns:
        assert not found.ended
        found.waiting.pop()(found.answer(text))
    assert (found.pauses, found.counts, found.ended, found.waiting) == (pauses, counts, [True], [])
    # No clock shows the same after them.
    assert PAUSE > 1
    assert LATER > 60


def test_a_new_page_is_equal_after_one_equal_rerun():
    found = Course("a", is_new=True)
    found.comparison.begin(answer("a"))
    found.waiting.pop()(answer("a"))
    assert (found.counts, found.ended, found.waiting) == (["equal"], [True], [])


@pytest.mark.parametrize(("again", "kind"), [("b", "wrong"), ("a", "outdated"), ("!", "wrong")])
def test_an_answer_that_the_visitor_no_longer_gets_is_outdated_and_not_wrong(again, kind):
    found = Course("b", repeated=again, is_new=True)
    found.comparison.begin(answer("b"))
    for _ in range(MOST_RERUNS):
        found.waiting.pop()(answer("a"))
    assert found.counts == [kind]


def test_a_cookie_that_only_the_visitor_gets_is_wrong_without_a_rerun():
    found = Course("a")
    found.comparison.begin(answer("a", cookies=b"seen"))
    assert (found.counts, found.ended, found.waiting) == (["wrong"], [True], [])
