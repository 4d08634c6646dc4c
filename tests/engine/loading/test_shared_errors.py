"""A load that fails raises an exception of its own for each caller: none shows the frames of another one."""

import traceback

import pytest

from tests.engine.loading.harness import Held, returns
from tests.waiting import PATIENCE, until, until_waiting

WAITERS = 5


class Refused(Exception):
    def __init__(self, code, *, detail=""):
        super().__init__(code)
        self.detail = detail


class Reworded(Exception):
    """Cannot be copied: a copy would have other arguments."""

    def __init__(self, code):
        super().__init__(f"refused: {code}")


class Named(Exception):
    """Cannot be copied: the copy would lack an argument."""

    def __init__(self, *, code):
        super().__init__()
        self.code = code


def passwords(error):
    """Return the values of the variable ``password`` in all frames that the exception refers to."""
    found = [error]
    for each in found:
        found += [other for other in (each.__cause__, each.__context__, *getattr(each, "exceptions", ())) if other]
    frames = [frame for each in found for frame, _ in traceback.walk_tb(each.__traceback__)]
    return {frame.f_locals["password"] for frame in frames if "password" in frame.f_locals}


def request(cache, password, loader, **policy):
    try:
        cache.get_or_load("k", loader, **policy)
    except Exception as error:
        return error


def fail_together(cache, pool, error, **policy):
    """Return the exceptions of the leader, and of the callers that waited for it."""
    held = Held()

    def loader(password="of the loader"):
        held()
        try:
            raise LookupError("the cause")
        except LookupError as cause:
            raise error from cause

    leader = pool.submit(request, cache, "of the leader", loader, **policy)
    assert held.is_running()
    waiters = [pool.submit(request, cache, number, loader) for number in range(WAITERS)]
    until_waiting(WAITERS + bool(policy))
    held.release()
    assert held.calls == 1
    return leader.result(PATIENCE), [each.result(PATIENCE) for each in waiters]


@pytest.mark.parametrize("policy", [{}, {"timeout": PATIENCE}], ids=["", "timed"])
def test_each_waiter_raises_a_copy_that_shows_its_own_frames_only(cache, pool, caplog, policy):
    error = Refused("no", detail=["a", "b"])
    error.add_note("a note")
    raised, copies = fail_together(cache, pool, error, **policy)
    assert raised is error
    assert passwords(raised) == {"of the leader", "of the loader"}
    assert raised.__notes__ == ["a note"]
    assert len({id(each) for each in (raised, *copies)}) == WAITERS + 1
    for number, each in enumerate(copies):
        assert (type(each), each.args, each.detail) == (Refused, ("no",), ["a", "b"])
        assert passwords(each) == {number}
        assert len([*traceback.walk_tb(each.__traceback__)]) < 10
        assert each.__notes__ == ["a note", "Another caller started this load of 'k'. Its traceback is in the log."]
    # The thread that has loaded the key logs after it has woken the callers.
    assert until(lambda: "LookupError: the cause" in caplog.text)
    assert caplog.text.count("Loading 'k' into the cache 'default' failed; the callers that wait for it receive") == 1
    assert caplog.text.count("LookupError: the cause") == 1


def test_the_exceptions_of_a_group_are_copied_too(cache, pool):
    inner = Refused("inner")
    try:
        password = "of the loader"
        raise inner
    except Refused:
        del password
    group = ExceptionGroup("all", [inner, ExceptionGroup("more", [Refused("deeper")])])
    raised, copies = fail_together(cache, pool, group)
    assert raised is group
    for number, each in enumerate(copies):
        assert (type(each), each.message, repr(each.exceptions)) == (ExceptionGroup, "all", repr(group.exceptions))
        assert each.exceptions[0] is not inner
        assert passwords(each) == {number}


@pytest.mark.parametrize("error", [Reworded(7), Named(code=7)], ids=repr)
def test_an_exception_that_cannot_be_copied_is_raised_itself_without_the_frames_of_the_leader(cache, pool, error):
    raised, others = fail_together(cache, pool, error)
    assert all(each is error for each in (raised, *others))
    frames = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
    assert frames.count("request") <= WAITERS
    assert "loader" not in frames


def test_a_caller_that_waits_for_none_raises_the_exception_itself_and_nothing_is_logged(cache, caplog):
    error = Refused("no")
    assert request(cache, "mine", returns(error)) is error
    assert caplog.text == ""
