"""Tests that need a guest, where the heart is alone: see ``make heart``."""

from importlib.util import find_spec

import pytest

from wheelcache.engine.guests import module_of

Timers = getattr(module_of("timers", "timers"), "Timers", None)


def has(guest):
    return find_spec(f"wheelcache.{guest}") is not None


def needs(*guests):
    """Return a mark for a test, or a case of one, that is left out where one of these guests is missing."""
    missing = [guest for guest in guests if not has(guest)]
    return pytest.mark.skipif(bool(missing), reason=f"needs wheelcache.{' and '.join(missing)}")
