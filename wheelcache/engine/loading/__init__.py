"""Loading values: single flight, stale values, refreshes, fail-safe, timeouts, memoize."""
