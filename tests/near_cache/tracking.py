"""Records the messages from Redis to the near caches of a test, for each connection that tracks writes."""

from wheelcache.near_cache import redis_tracking


class Recorder:
    """The listener of a connection, which records its messages.

    Attributes:
        trusted: whether its copies may be used.
        keys: the keys that were written since the test last cleared the list.
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

    def refused(self):
        self._listener.refused()


class Noted(redis_tracking.Tracking):
    """
    Attributes:
        made: all connections of this test.
        recorder: the messages to the listener of this connection.
    """

    made = ()

    def __init__(self, connect, prefix, listener, **times):
        self.recorder = Recorder(listener)
        super().__init__(connect, prefix, self.recorder, **times)
        Noted.made += (self,)


def note(set_attribute):
    Noted.made = ()
    set_attribute(redis_tracking, "Tracking", Noted)


def stop_all():
    for each in Noted.made:
        each.stop()
