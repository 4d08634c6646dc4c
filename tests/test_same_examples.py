"""Every run has the same examples and random numbers, so a failure shows the state of the commit, not luck."""

import random
from importlib import import_module

from hypothesis import given, settings
from hypothesis import strategies as st


def examples():
    drawn = []

    @settings(max_examples=60, derandomize=True)
    @given(st.integers(), st.text())
    def draw(number, text):
        drawn.append((number, text))

    draw()
    return drawn


def test_examples_are_the_same_whatever_was_imported_before(tmp_path, monkeypatch):
    before = examples()
    (tmp_path / "constants_of_a_site.py").write_text("NUMBERS = 123456789, 987654321\nNAMES = 'orange', 'lemon'\n")
    monkeypatch.syspath_prepend(tmp_path)
    import_module("constants_of_a_site")
    assert examples() == before


def test_random_numbers_are_those_of_the_test(request):
    seed = f"{request.config.getoption('hypothesis_seed')} {request.node.nodeid}"
    assert random.random() == random.Random(seed).random()
