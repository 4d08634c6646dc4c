"""The turns of a ``Tracking`` whose connection, clock and question are those of the test: what it reports, and when."""

from math import inf

import pytest
import redis

from tests.near_cache.listeners import Copies
from wheelcache import ManualClock
from wheelcache.near_cache.redis_tracking import FIRST_PAUSE, LONGEST_PAUSE, PAUSE_IF_REFUSED, Tracking


def write_of(key):
    return [b"message", b"channel", [key]]


WRITE = write_of(b"a:1")
FLUSH = [b"message", b"channel", None]
PONG = "the answer to the last PING"
LOST = redis.ConnectionError("lost")


class Connection:
    """A connection that receives ``messages``, some of which are seconds of silence or exceptions, and is then lost."""

    def __init__(self, clock, *messages):
        self.clock = clock
        self.messages = list(messages)
        self.replies = []
        self.sent = []

    def connect(self):
        self.sent.clear()

    def disconnect(self):
        self.sent.append("disconnected")

    def send_command(self, *words):
        self.sent.append(words)
        if words[0] != "PING":
            self.replies.append(f"reply to {words[-1]}")

    def can_read(self, seconds):
        if not self.messages or not isinstance(self.messages[0], float):
            return True
        silence = self.messages.pop(0)
        self.clock.advance(min(seconds, silence))
        if silence > seconds:
            self.messages.insert(0, silence - seconds)
        return False

    def read_response(self):
        message = (self.replies or self.messages or [LOST]).pop(0)
        if isinstance(message, Exception):
            raise message
        return [b"pong", self.sent[-1][1].encode()] if message is PONG else message


class Listener(Copies):
    """Notes for how long the copies may be used, at each report, which takes a while."""

    tracking = None
    seconds = 0.0

    def __init__(self, clock):
        super().__init__()
        self.clock = clock
        self.left = []

    def invalidated(self, keys):
        self.left.append(self.tracking.trusted_until - self.clock())
        super().invalidated(keys)
        self.clock.advance(self.seconds)
        if keys == [b"a:bad"]:
            raise SystemExit("listener")


@pytest.fixture
def clock():
    return ManualClock(100.0)


@pytest.fixture
def listener(clock):
    return Listener(clock)


@pytest.fixture
def tracking_over(clock, listener):
    """Make a ``Tracking`` over a connection that receives the messages."""

    def make(*messages, **given):
        connection = Connection(clock, *messages)
        listener.tracking = Tracking(lambda timeout: connection, b"a:", listener, clock=clock, **given)
        return listener.tracking, connection

    return make


def test_reported_writes_are_told_and_trusted_from_the_first_answer_until_the_loss(tracking_over, listener):
    tracking, connection = tracking_over(WRITE, PONG, WRITE, FLUSH)
    tracking.turn()
    assert listener.told == [b"a:1", True, b"a:1", "all", False]
    assert connection.sent == [
        ("CLIENT", "ID"),
        ("CLIENT", "TRACKING", "ON", "REDIRECT", "reply to ID", "BCAST", "PREFIX", b"a:"),
        ("SUBSCRIBE", "__redis__:invalidate"),
        ("PING", "1"),
        "disconnected",
    ]


def test_each_answer_extends_the_trust_from_the_time_of_its_ping(tracking_over, listener):
    # The second PING is sent a second after the first one, and answered half a second later.
    tracking, _ = tracking_over(PONG, WRITE, 0.5, WRITE, 0.5, 0.5, WRITE, PONG, WRITE)
    tracking.turn()
    assert listener.told == [True, *[b"a:1"] * 4, False]
    assert listener.left == [-inf, 2.0, 1.5, 0.5, 1.5, -inf]
    assert tracking.trusted_until == -inf


LOSSES = {
    "silence": (PONG, 1.0, 1.01),
    "silence from the beginning": (1.01,),
    "an answer to another PING": ([b"pong", b"0"], 1.01),
    "an unknown message": (PONG, [b"subscribe", b"another", 1]),
    "an error of the network": (PONG, OSError("gone")),
    "an error of the listener": (PONG, write_of(b"a:bad")),
}


@pytest.mark.parametrize("messages", LOSSES.values(), ids=LOSSES)
def test_a_connection_that_fails_is_no_longer_trusted_and_made_again(tracking_over, listener, lines, messages):
    tracking, connection = tracking_over(*messages, WRITE)
    assert FIRST_PAUSE / 2 <= tracking.turn() <= FIRST_PAUSE
    assert [each for each in listener.told if each != b"a:bad"] == ([True, False] if PONG in messages else [])
    assert connection.sent[-1] == "disconnected"
    assert "Not receiving invalidations for Redis keys a:* (" in lines()[-1]


def test_a_thread_that_was_held_up_waits_for_an_answer_once_more(tracking_over, listener, lines):
    listener.seconds = 1.5
    tracking, _ = tracking_over(PONG, WRITE, PONG, write_of(b"a:2"), write_of(b"a:3"), WRITE)
    tracking.turn()
    assert listener.told == [True, b"a:1", b"a:2", b"a:3", False]
    assert "Silent: more than 1.0 s behind" in lines()[0]


def test_a_lost_connection_is_made_again_after_pauses_that_double_up_to_the_longest(tracking_over, lines):
    tracking, connection = tracking_over()
    for number in range(12):
        longest = min(FIRST_PAUSE * 2**number, LONGEST_PAUSE)
        assert longest / 2 <= tracking.turn() <= longest
    assert len(lines()) == 1
    # One that has lasted is made again soon.
    connection.messages = [PONG, 1.0] * 11
    assert tracking.turn() <= FIRST_PAUSE
    lost, back, again = lines()
    assert "(ConnectionError: lost); no local copies are used until they arrive. Retrying." in lost
    assert back == "Receiving invalidations for Redis keys a:* again, after 0.0 s."
    assert again == lost


@pytest.mark.parametrize("error", [redis.AuthenticationError, redis.ResponseError, redis.exceptions.NoPermissionError])
def test_a_server_that_refuses_is_asked_rarely_and_logged_once(tracking_over, listener, lines, error):
    tracking, connection = tracking_over()
    for _ in range(2):
        connection.messages = [error("no")]
        assert PAUSE_IF_REFUSED / 2 <= tracking.turn() <= PAUSE_IF_REFUSED
    assert listener.told == ["refused"]
    assert "This needs Redis 6" in lines()[0]
    assert len(lines()) == 1


class Question:
    """Is answered with yes when these seconds have passed since it was asked, or with no."""

    def __init__(self, clock, *seconds):
        self.clock, self.seconds = clock, list(seconds)

    def connect(self, connection, timeout):
        """Can be asked."""

    def ask(self):
        self.due = self.clock() + self.seconds.pop(0)

    def is_confirmed(self):
        if self.due == inf:
            raise redis.RedisError("no")
        return self.clock() >= self.due

    def disconnect(self):
        self.due = None


ANSWERS = {"in time": ([0.0, 0.5], [-inf, 1.5]), "too late": ([1.5], []), "no": ([0.0, inf], [-inf, -inf])}


@pytest.mark.parametrize(("seconds", "left"), ANSWERS.values(), ids=ANSWERS)
def test_trust_is_extended_only_if_the_question_is_answered_in_time(tracking_over, listener, clock, seconds, left):
    question = Question(clock, *seconds)
    tracking, _ = tracking_over(PONG, 1.0, PONG, 0.5, WRITE, question=question)
    tracking.turn()
    assert listener.left[:2] == left
    assert question.due is None
