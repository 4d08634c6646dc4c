"""Entries and invalidations that follow the transactions of a database."""
