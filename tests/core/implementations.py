"""The implementations of the contract, by name: functions, since a compiled one is built when first needed."""

from tests.core.compiled import compiled_core
from wheelcache.core.python_core import PythonCore

IMPLEMENTATIONS = {"python": lambda: PythonCore, "compiled": compiled_core}
