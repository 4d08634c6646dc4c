from tests.engine.conftest import clock, runtime_parent

__all__ = ["clock", "runtime_parent"]
