"""The adapters of each framework."""

from tests.backends.on_django import OnDjango, OnDjangoAsync
from tests.backends.on_flask import OnFlask

ADAPTERS = {"django": OnDjango, "flask": OnFlask}

WITH_ASYNC = {**ADAPTERS, "django async": OnDjangoAsync}
"""``pytest.mark.parametrize("adapter", WITH_ASYNC.values(), ids=WITH_ASYNC, indirect=True)``"""
