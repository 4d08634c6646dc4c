"""Values of ``memoize`` that processes share through another cache."""

import os

import pytest

from tests import scripts

CALL = """
import sys

import django
from django.conf import settings

settings.configure(
    CACHES={"default": {"BACKEND": "django.core.cache.backends.filebased.FileBasedCache", "LOCATION": sys.argv[1]}},
)
django.setup()

from wheelcache.django_backend import memoize

calls = []

def load(wanted):
    calls.append(wanted)
    return len(wanted)

load.__module__ = sys.argv[3]
load = memoize(60)(load)

names = ["red", "green", "blue", "black"]
load(eval(sys.argv[2]))
print(len(calls))
"""


@pytest.mark.parametrize(
    "argument", ["frozenset(names)", "(frozenset(names), 1)", "frozenset([frozenset(names), 'a'])"]
)
def test_processes_have_the_same_key_for_a_set(tmp_path, argument):
    outputs = [
        scripts.run(CALL, tmp_path, argument, "shop", env={**os.environ, "PYTHONHASHSEED": seed}).strip()
        for seed in "123"
    ]
    assert outputs == ["1", "0", "0"]


def test_functions_of_a_script_have_values_of_their_own_in_each_process(tmp_path):
    """Another script may have another function of that name."""
    assert [scripts.run(CALL, tmp_path, "'a'", "__main__").strip() for _ in range(2)] == ["1", "1"]
