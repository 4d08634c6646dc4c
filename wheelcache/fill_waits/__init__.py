"""Fill leases: of several callers that miss a key with a plain ``get``, one computes the value and the others wait.

- ``leased_reads``: the look-ups, and who receives a lease. ``fill_turns``: the leases, as turns that a write ends.
"""
