"""Caches for tests."""

QUIET = {"log_interval": None, "sample_interval": None}
