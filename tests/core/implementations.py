"""The implementations of the contract, by name."""

from wheelcache.core._core import CompiledCore
from wheelcache.core.python_core import PythonCore

IMPLEMENTATIONS = {"compiled": CompiledCore, "python": PythonCore}
