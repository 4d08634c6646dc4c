"""Check an installed package: ``make wheel`` and cibuildwheel run this file where nothing else is installed.

The argument is the core that the package must have: ``compiled`` or ``python``.
"""

import sys
from pathlib import Path

import wheelcache
from wheelcache.core import HOW_TO_CHANGE, IMPLEMENTATION
from wheelcache.timers import Timers

package = Path(wheelcache.__file__).parent
assert package.is_relative_to(sys.prefix), package
assert sys.argv[1:] == [IMPLEMENTATION], f"the package has the {IMPLEMENTATION} core. {HOW_TO_CHANGE}"
assert (package / "py.typed").exists()
assert {each.suffix for each in (package / "watch" / "dashboard").iterdir()} >= {".css", ".html", ".js"}
assert not [each for each in package.rglob("*") if each.suffix in (".pyx", ".pxi", ".c")]

clock = wheelcache.ManualClock()
cache = wheelcache.Cache(clock=clock, max_entries=2, jitter=0)
for number in range(3):
    cache.set(f"key {number}", number, 10)
assert cache.get("key 0") is None
assert cache.get_many(["key 1", "key 2"]) == {"key 1": 1, "key 2": 2}
clock.advance(10)
assert len(cache) == 0

timers = Timers(1.0, print, clock=clock)
event = timers.after(5.0)
clock.advance(5)
assert event.is_set()
