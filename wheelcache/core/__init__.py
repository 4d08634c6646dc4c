"""The data structure under every cache: a bounded map in order of use with a timing wheel under it."""
