"""The work that a wheel thread does for a core."""


def advance_all(core, removed=None):
    """Advance ``core`` until no work is due by its clock."""
    while core.next_due <= core.now():
        core.advance(removed=removed)
