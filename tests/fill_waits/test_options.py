"""How the options are shown."""

import pytest

from wheelcache.fill_waits.options import DJANGO, FLASK, OPTIONS

SHOWN = [
    ((), "0"),
    ((("", 5.0),), "5"),
    ((("", 0.5),), "0.5"),
    (((DJANGO["pages"], 5.0), (FLASK["fragments"], 0.5), ("key", 0.0)), "{'pages': 5, 'fragments': 0.5, 'key': 0}"),
    ((("key", 1.0), ("", 5.0)), "{'key': 1, '': 5}"),
]


@pytest.mark.parametrize(("value", "words"), SHOWN)
def test_prefixes_with_names_are_shown_by_these_and_one_number_for_all_keys_without_a_dict(value, words):
    for option in OPTIONS:
        assert option.words(value) == words
