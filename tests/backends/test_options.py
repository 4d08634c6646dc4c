"""The options that both backends pass to the engine: accepted and refused values, and their effects."""

import os
from decimal import Decimal

import pytest

from tests.guests import needs

NAN, INF = float("nan"), float("inf")

COUNT_OR_NONE = "a whole number >= 1, or None"
FRACTION = "a fraction, 0 <= fraction < 1"
PATH = "an absolute path, or None"
PATHS = (1, True, b"/tmp/x", "", "figures", "./figures", "/tmp/a\0b", ["/tmp"])

WRONG = [
    *(("max_bytes", wrong, COUNT_OR_NONE) for wrong in (0, -1, 1e6, "1MB", False, [], Decimal(5))),
    *(("jitter", wrong, FRACTION) for wrong in (-0.1, 1, 1.0, 5, "0.1", None, True, NAN, INF, [0.1])),
    *(("figures_dir", wrong, PATH) for wrong in PATHS),
    ("figures_dir", "/tmp/a\ud800", "a path that the file system can encode"),
]


@pytest.mark.pairs(full="adapter", of="adapter, option")
@pytest.mark.parametrize(("option", "wrong", "takes"), WRONG, ids=[f"{name}={wrong!r:.20}" for name, wrong, _ in WRONG])
def test_a_wrong_option_is_an_error_that_names_it_and_what_it_takes_and_got(adapter, option, wrong, takes):
    with pytest.raises(adapter.refused) as refused:
        adapter.make(**{option: wrong})
    for part in (adapter.spelled(option), takes, f"not {wrong!r:.200}"):
        assert part in str(refused.value)


def test_every_minute_has_a_line_of_figures_which_names_the_cache(make, clock, caplog):
    caplog.set_level("INFO", "wheelcache.stats")
    cache = make("figures of its own")
    cache.set("key", 1, None)
    cache.get("key")
    cache.get("missing")
    clock.advance(59)
    assert caplog.messages == []
    clock.advance(1)
    expected = "cache(figures of its own) - qpm: 2, hit_ratio: 50.0%, elements: 1, hit: 1, miss: 1"
    assert caplog.messages == [f"{expected}, pid: {os.getpid()}"]


@needs("watch")
@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_figures_dir_is_where_figures_are_published(make, clock, tmp_path, kind):
    cache = make(figures_dir=kind(tmp_path / "figures"))
    cache.set("a", 1)
    clock.advance(10)
    from tests.watch.published import only

    found = only(tmp_path / "figures")
    assert (found.name, found.stats.size) == (cache.name, 1)
