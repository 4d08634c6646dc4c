"""The adapter of each framework."""

from tests.backends.on_django import OnDjango
from tests.backends.on_flask import OnFlask

ADAPTERS = {"django": OnDjango, "flask": OnFlask}
