"""No visitor makes the process grow beyond ``max_bytes``: many hostile requests, each kind in a process of its own."""

import json

import pytest

from tests.pages.memory_attacks import ATTACKS
from tests.scripts import run_python

REQUESTS = 20_000
MAX_BYTES = 2 << 20
MORE = 8 << 20
"""Bytes for the keys, the figures and the objects of the stored pages, and for the allocator."""

# All of them at the same time, and each by itself.
KINDS = [[*ATTACKS][-1], *(pytest.param(kind, marks=pytest.mark.deep) for kind in [*ATTACKS][:-1])]


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_requests_do_not_make_the_process_grow(kind):
    result = run_python("-m", "tests.pages.memory_attacks", kind, str(REQUESTS), str(MAX_BYTES), check=True)
    figures = json.loads(result.stdout)
    assert sum(figures["statuses"].values()) == REQUESTS
    assert figures["entries"] >= 1
    assert figures["grown"] < MAX_BYTES + MORE
