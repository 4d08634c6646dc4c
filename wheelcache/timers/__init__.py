"""Keyed timers, broadcasts and periodic jobs for other code, on the wheel of the cache."""
