"""The timers of ``Timers``: their table in a timing wheel, and what runs them when they are due."""
