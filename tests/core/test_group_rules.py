"""The groups of entries that are not in the compiled core have the names that this core gives."""

import pytest

from wheelcache.core import CoreClass
from wheelcache.core.contract import GroupRule
from wheelcache.core.group_rules import LOOKED_AT, NAME_SIZE, group_by_rules

RULES = [
    GroupRule("1:template.cache.", "fragment ", "."),
    GroupRule("1:sessions.", "sessions", ""),
    GroupRule("1:", "", ":"),
    GroupRule("", "", ":"),
]
TEXTS = [
    *(
        "",
        ":",
        "1:",
        "1:user:7",
        "user:7",
        "user",
        "1:template.cache.menu.0af",
        "1:template.cache.menu",
        "1:sessions.abc",
    ),
    *("é:1", "1:é:1", "user:é", "useré:1", "x" * (LOOKED_AT - 1) + ":", "x" * LOOKED_AT + ":", "1:" + "x" * NAME_SIZE),
    *("x" * NAME_SIZE + ":1", "x" * (NAME_SIZE + 1) + ":1", "1:template.cache." + "x" * NAME_SIZE + ".1", "::", "1::"),
]


@pytest.mark.compiled
@pytest.mark.parametrize(
    "key", [*TEXTS, *((each,) for each in TEXTS), *((each, 7) for each in TEXTS), (), (7, "a"), b"a:1", 7]
)
def test_a_key_has_the_group_that_the_compiled_core_gives_it(key):
    core = CoreClass(max_entries=10, max_weight=None, jitter=0.0, interval=1.0, clock=lambda: 0.0, policy="lru")
    core.group_by(RULES)
    core.set(key, 1, None)
    assert group_by_rules(RULES, key) == core.peek(key).group
