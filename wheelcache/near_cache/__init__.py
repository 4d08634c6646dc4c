"""A cache in front of a store that several processes share."""
