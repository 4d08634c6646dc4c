"""Workers that publish ten times as often as usual, so that tests of their site wait for a tenth of the time."""

from wheelcache.watch import key_samples, publisher
from wheelcache.watch.key_samples import KeySamples
from wheelcache.watch.publisher import INTERVAL, MIN_INTERVAL, Publication

INTERVALS = 10


def publish_often():
    """Publish often in this process. What processes expect of the others stays the same."""
    Publication.period = INTERVAL / INTERVALS
    Publication.next_run = lambda publication, due, now: due + publication.period
    publisher.MIN_INTERVAL = MIN_INTERVAL / INTERVALS
    KeySamples.period /= INTERVALS
    key_samples.PUBLISH_EVERY /= INTERVALS
