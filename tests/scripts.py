"""Options of Python for a script that forks: ``[sys.executable, *FORKING, "-c", script]``."""

FORKING = [
    # A fork copies what is still in the buffer of print, and os._exit drops it.
    "-u",
    # Python 3.12 and newer warn of the threads that a script has of its own. This comes after any "-W error".
    *("-W", "ignore:This process:DeprecationWarning"),
]
