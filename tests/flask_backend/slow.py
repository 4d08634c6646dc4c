"""A function that takes as long as a test wants, and its callers."""

import threading

from tests.waiting import PATIENCE, until, until_waiting


class Slow:
    """A function that counts its calls, and returns when the test lets it."""

    def __init__(self, make_value=lambda number: f"value {number}"):
        self.make_value = make_value
        self.count = 0
        self.may_return = threading.Event()

    def __call__(self, *args):
        self.count += 1
        number = self.count
        assert self.may_return.wait(PATIENCE)
        value = self.make_value(number)
        if isinstance(value, Exception):
            raise value
        return value


def in_app(app, function, *args):
    def call():
        with app.app_context():
            return function(*args)

    return call


def together(in_thread, app, function, slow, callers=8):
    """The outcomes of callers of which one leads, in the order in which they came."""
    leader = in_thread(in_app(app, function))
    assert until(lambda: slow.count == 1)
    waiters = [in_thread(in_app(app, function)) for _ in range(callers - 1)]
    until_waiting(callers - 1)
    slow.may_return.set()
    return [leader, *waiters]
