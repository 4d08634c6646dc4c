"""The foundation of all other parts: clocks, the wheel thread, forks and exits, thread pools, private files."""
