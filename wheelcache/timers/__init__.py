"""Keyed timers, and locks that expire."""
