"""Timeouts that no backend takes, and the error that says so."""

from contextlib import contextmanager
from decimal import Decimal

import pytest

WRONG_TIMEOUTS = ["300", float("nan"), [5], Decimal(5), 5j]


@contextmanager
def refused_timeout(cache, wrong):
    """Check that the error names the argument, the accepted values and the given value."""
    with pytest.raises(TypeError) as refused:
        yield
    accepted = "or None for no expiry" if cache.spelled("x") == "X" else "(0 for never) or a timedelta"
    for part in ("timeout must be a number of seconds", accepted, f"not {wrong!r}"):
        assert part in str(refused.value)
