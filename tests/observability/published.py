"""What a reader finds that is no worker itself."""

from wheelcache import Cache
from wheelcache.observability.publisher import INTERVAL
from wheelcache.observability.site import SETTLED, Own, Site
from wheelcache.runtime.clock import SystemClock

__all__ = ["INTERVAL", "SETTLED", "Site", "counted", "look", "only", "steps_in"]


def look(path, clock=SystemClock.monotonic):
    """The site whose processes publish in ``path``, at the time that ``clock`` shows."""
    return Site([Cache("looks only", figures_dir=path, clock=clock)], Own.NONE)


def only(path):
    """The figures of the only cache."""
    (found,) = look(path).caches
    return found


def counted(path):
    """The hits of each cache, by its name, also those of processes that are gone."""
    return {each.name: each.counted.hits for each in look(path).caches}


def steps_in(path, name="pages", clock=SystemClock.monotonic, **options):
    """The steps of a cache, by their starts."""
    return look(path, clock).steps(name, **options)[1]
