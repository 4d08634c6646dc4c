"""Figures: counts over time, shared by workers, as metrics, in the terminal, and as a page."""
