"""Notes the connections of a test by which Redis tells near caches of writes."""

import time

from wheelcache.near_cache import redis_tracking


class Noted(redis_tracking.Tracking):
    """
    Attributes:
        made: all connections of this test.
    """

    made = ()

    def __init__(self, *args, **given):
        super().__init__(*args, **given)
        Noted.made += (self,)

    def is_trusted(self):
        return self.trusted_until > time.monotonic()


def note(set_attribute):
    Noted.made = ()
    set_attribute(redis_tracking, "Tracking", Noted)


def stop_all():
    for each in Noted.made:
        each.stop()
