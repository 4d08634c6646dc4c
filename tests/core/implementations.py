"""The implementations of the contract. Tests of the compiled one have the marker ``compiled``."""

import pytest

from wheelcache.core.python_core import PythonCore

CORES = {"python": PythonCore}

try:
    from wheelcache.core import _core
except ImportError:
    # Without a compiler. The tests with the marker are not selected.
    pass
else:
    CORES["compiled"] = _core.CompiledCore

COMPILED = pytest.param("compiled", marks=pytest.mark.compiled)
