"""Fill leases: of several callers that miss a key with a plain get, one computes it and the others wait."""
