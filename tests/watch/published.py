"""Read published figures as a process that is not a worker."""

from wheelcache import Cache
from wheelcache.runtime.clock import SystemClock
from wheelcache.watch.publisher import INTERVAL
from wheelcache.watch.site import SETTLED, Own, Site

__all__ = ["INTERVAL", "SETTLED", "Site", "counted", "look", "only", "steps_in", "steps_of"]


def look(path, clock=SystemClock.steady):
    """Return the site whose processes publish in ``path``, at the time of ``clock``."""
    return Site([Cache("looks only", figures_dir=path, clock=clock)], Own.NONE)


def only(path):
    """Return the figures of the only cache."""
    (found,) = look(path).caches
    return found


def counted(path):
    """Return the hits of each cache by name, including those of processes that have exited."""
    return {each.name: each.stats.hits for each in look(path).caches}


def steps_of(site):
    """Return the steps of the cache "pages" in the last hour, by their start."""
    (figures,) = (each for each in site.caches if each.name == "pages")
    span = site.span(site.edge - 3600)
    return site.within(figures, span).steps(span)


def steps_in(path, clock):
    """Return the steps of the cache "pages" in the last hour, by their start."""
    return steps_of(look(path, clock))
