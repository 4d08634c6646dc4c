"""The implementations of the contract and of the wheel. Tests of the compiled ones have the marker ``compiled``."""

import pytest

from wheelcache.core.python_core import PythonCore
from wheelcache.core.timing_wheel import TimingWheel

CORES = {"python": PythonCore}
WHEELS = {"python": TimingWheel}

try:
    from wheelcache.core import _core, _timing_wheel
except ImportError:
    # Without a compiler. The tests with the marker are not selected.
    pass
else:
    CORES["compiled"] = _core.CompiledCore
    WHEELS["compiled"] = _timing_wheel.TimingWheel

COMPILED = pytest.param("compiled", marks=pytest.mark.compiled)
