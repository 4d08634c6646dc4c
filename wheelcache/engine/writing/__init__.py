"""Writes: weighing, the step of the core, waking the wheel thread, notifying waiters and the removal listener."""
