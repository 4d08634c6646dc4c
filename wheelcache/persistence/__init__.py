"""Snapshots: the entries of a cache, kept from one process to the next."""
