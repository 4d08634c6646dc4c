"""The way of a write: weighing, the step of the core, waking the wheel thread, telling waiters and the listener."""
