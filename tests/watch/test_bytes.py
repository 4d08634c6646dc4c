"""The bytes of entries are known if entries are weighed in bytes."""

import pytest

from tests.watch.published import steps_of
from wheelcache import Cache
from wheelcache.engine.codec import size_of
from wheelcache.watch.site import Site, own_figures


@pytest.mark.parametrize(
    ("options", "is_known"),
    [
        ({"max_weight": 10**6, "weigher": size_of}, True),
        ({"max_weight": 10**6, "weigher": lambda key, value: 1}, False),
        ({}, False),
    ],
)
def test_figures_and_history_have_the_bytes_of_entries_that_are_weighed_in_bytes(clock, tmp_path, options, is_known):
    cache = Cache(clock=clock, jitter=0, figures_dir=tmp_path / "figures", **options)
    for number in range(10):
        cache.set(number, "x" * 1000)
    clock.advance(30)
    (figures,) = own_figures([cache])
    assert figures.memory == (cache.stats().weight if is_known else None)
    step = list(steps_of(Site([cache]), cache.name).values())[-1]
    assert (step.entries, step.memory) == (10, cache.stats().weight if is_known else 0)
    assert not is_known or figures.memory > 10_000
