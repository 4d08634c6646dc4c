"""The figures of caches: recorded over time, shared by workers, and shown as metrics, in a terminal and on a page."""
