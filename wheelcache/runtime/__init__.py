"""The foundation of all other parts, which knows nothing of caches: clocks, threads, forks and exits, private files.

From below:

- ``clock``, ``frozen_time``: time as an argument; freezegun and time-machine.
- ``lifecycle``: all hooks for forks and exits, in order. ``threads``: daemon threads, which end before a fork.
- ``wheel_thread``, ``wheel_driver``: the one thread of a process that advances its wheels, and what does so without it.
- ``worker_pool``, ``alarm``: a few threads for background work; an event for threads and for tasks.
- ``steps``: code that is written once, for threads and for tasks.
"""
