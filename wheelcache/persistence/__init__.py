"""Snapshots: the entries of a cache, saved by one process and loaded by the next."""
