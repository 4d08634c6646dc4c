"""What Redis tells the near caches of a test: each connection that tracks writes, and what was heard from it."""

from wheelcache.near_cache import redis_tracking


class Told:
    """The listener of a connection, with notes of what it is told.

    Attributes:
        trusted: whether its copies may be used.
        keys: those that were written since the test last cleared the list.
    """

    def __init__(self, listener):
        self._listener = listener
        self.trusted = False
        self.keys = []

    def invalidated(self, keys):
        self._listener.invalidated(keys)
        self.keys.extend(keys)

    def flushed(self):
        self._listener.flushed()

    def trust(self, trusted):
        self._listener.trust(trusted)
        self.trusted = trusted


class Noted(redis_tracking.Tracking):
    """
    Attributes:
        made: all that were made in this test.
        told: what this one's listener was told.
    """

    made = ()

    def __init__(self, connect, prefix, listener, **times):
        self.told = Told(listener)
        super().__init__(connect, prefix, self.told, **times)
        Noted.made += (self,)


def note(set_attribute):
    Noted.made = ()
    set_attribute(redis_tracking, "Tracking", Noted)


def stop_all():
    for each in Noted.made:
        each.stop()
