"""The work that a wheel thread does for a core."""


def advance_all(core, removed=None):
    """Have ``core`` do all that is due by its clock."""
    while core.next_due <= core.now():
        core.advance(removed=removed)
