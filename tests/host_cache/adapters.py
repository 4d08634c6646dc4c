"""``HostCache`` of both frameworks, in the words of ``tests.backends.adapter``."""

import pytest

from tests.backends.on_django import OnDjango
from tests.backends.on_flask import OnFlask
from wheelcache import django_backend, flask_backend
from wheelcache.errors import FileUnusable

LACKED_BY_HOST = {"max_bytes", "policy"}
"""The options of WheelCache that HostCache does not have."""


def check_has(options):
    """Leave out the case of a test that has an option which HostCache lacks."""
    if lacks := LACKED_BY_HOST & options.keys():
        pytest.skip(f"HostCache has no {', '.join(lacks)}")


class OnDjangoHost(OnDjango):
    made = django_backend.HostCache
    lag, has_exact_order = 4, False

    @classmethod
    def make(cls, *args, **options):
        check_has(options)
        return super().make(*args, **options)

    @classmethod
    def at(cls, folder, **options):
        """Make a cache whose entries are in a folder."""
        return cls.make(str(folder), **options)


class OnFlaskHost(OnFlask):
    bound, lag, has_exact_order = "max_entries", 4, False
    refused = (*OnFlask.refused, FileUnusable)

    @staticmethod
    def made(name, **options):
        check_has(options)
        return flask_backend.HostCache(name, name=name, **options)

    @classmethod
    def at(cls, folder, **options):
        return cls.make(location=str(folder), **options)
