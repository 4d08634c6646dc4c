"""A second implementation of the contract, in Cython. It is compiled when a test first needs it."""
