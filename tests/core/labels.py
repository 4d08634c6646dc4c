"""The labels of a write."""


def labels(tags=(), since=0, group=None):
    """Return the labels of an entry: see ``Labels``."""
    return tags, since, group
