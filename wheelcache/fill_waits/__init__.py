"""Fill leases: of several callers that miss a key with a plain ``get``, one computes the value and the others wait."""
