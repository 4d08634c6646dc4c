"""What a ``Cache`` needs: writes, loads, turns, options, counts, the wheel thread and forks."""
