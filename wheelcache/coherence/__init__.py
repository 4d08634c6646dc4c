"""Coherence: the processes of one machine learn of each other's writes."""
