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

@memoize(60)
def load(wanted):
    calls.append(wanted)
    return len(wanted)

names = ["red", "green", "blue", "black"]
load(eval(sys.argv[2]))
print(len(calls))
"""


@pytest.mark.parametrize(
    "argument", ["frozenset(names)", "(frozenset(names), 1)", "frozenset([frozenset(names), 'a'])"]
)
def test_processes_have_the_same_key_for_a_set(tmp_path, argument):
    outputs = [
        scripts.run(CALL, tmp_path, argument, env={**os.environ, "PYTHONHASHSEED": seed}).strip() for seed in "123"
    ]
    assert outputs == ["1", "0", "0"]
