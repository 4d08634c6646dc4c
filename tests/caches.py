"""Caches for tests."""

QUIET = {"log_interval": None, "keep_history": False}
