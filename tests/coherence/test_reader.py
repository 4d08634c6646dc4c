"""The reader of the notices of other machines: its thread, and how one process of a machine is chosen."""

import threading

import pytest

from tests.runtime.forks import fork
from tests.waiting import PATIENCE, happens, until
from wheelcache.coherence import reader
from wheelcache.coherence.notices import Notice
from wheelcache.coherence.reader import News, Reader, SourceRefused

pytestmark = pytest.mark.usefixtures("own_stamps")


class Source:
    """A source without notices.

    Attributes:
        positions: the position of each question.
        blocks: whether ``read`` waits until ``released`` is set.
        error: is raised by ``read``.
    """

    def __init__(self):
        self.positions = []
        self.blocks = False
        self.released = threading.Event()
        self.error = None

    def read(self, position):
        self.positions.append(position)
        if self.blocks:
            assert self.released.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        return News(Notice(), len(self.positions))

    def close(self):
        """Do nothing."""

    def forget(self):
        """Do nothing."""


@pytest.fixture
def read(monkeypatch):
    """Start a reader of a source, which is stopped at the end. It asks again when the test calls ``stop`` or forks."""
    monkeypatch.setattr(reader, "INTERVAL", 1000.0)
    monkeypatch.setattr(reader, "TRUST", 1000.0)
    made, sources = [], []

    def start(source):
        sources.append(source)
        made.append(Reader("machine", source, "the cache"))
        made[-1].start()
        return made[-1]

    yield start
    for each in sources:
        each.released.set()
    for each in made:
        each.stop()


def test_a_fork_during_a_question_does_not_make_the_reader_ask_without_pause(read):
    source = Source()
    source.blocks = True
    read(source)
    assert until(lambda: source.positions)
    assert fork()
    source.released.set()
    # The fork has ended one pause.
    assert not happens(lambda: len(source.positions) > 2, 0.3)


def test_a_reader_goes_on_after_a_fork(read):
    source = Source()
    read(source)
    assert until(lambda: source.positions)
    assert fork()
    assert until(lambda: len(source.positions) == 2)


def test_a_reader_whose_refused_source_cannot_be_closed_goes_on(read, monkeypatch):
    monkeypatch.setattr(reader, "PAUSE_IF_REFUSED", 0.01)
    source = Source()
    source.error = SourceRefused("no")

    def close():
        raise OSError("closed already")

    source.close = close
    read(source)
    assert until(lambda: len(source.positions) > 2)


def test_the_next_process_that_tries_the_lock_goes_on_at_the_position_of_the_last_one(read):
    """Each try takes the lock if it is free, so a killed reader is replaced after one pause between two tries."""
    first, second = Source(), Source()
    one = read(first)
    assert until(lambda: first.positions == [None])
    # Its thread is this one.
    other = Reader("machine", second, "the cache")
    assert other.turn() == reader.ELECTION_INTERVAL
    assert second.positions == []
    one.stop()
    assert until(lambda: other.turn() != reader.ELECTION_INTERVAL)
    assert second.positions == [1]
    other.leave()


def test_the_lock_is_tried_so_often_that_a_killed_reader_is_replaced_within_three_tenths_of_a_second():
    # The rest is for the connection and the first question.
    assert reader.ELECTION_INTERVAL <= 0.2
