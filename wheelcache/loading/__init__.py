"""How values are loaded: single flight, stale values, refreshes, fail-safe, timeouts, memoize."""
