"""One cache for the machine: its workers share the entries, and no server is needed.

The entries are rows of an SQLite database in a private folder in shared memory. ``HostCore`` has the contract of a core
on them, so a ``HostedCache`` is a ``Cache`` like any other: loads, leases, layers and both backends work on it without
code of their own. The parts, from below:

- ``place``: the folder, and the words that name the file in use. A file is never repaired. If it is damaged, if its
  writer was stopped, if it has grown too large or if the cache is cleared, all processes go on with a new one.
- ``host_file``: connections, reads of one statement, and writes that take turns.
- ``host_core``: the statements, and the removal of expired and unused rows.
- ``claims``: of the callers on the machine that miss a key, one computes its value.
- ``write_moments``: the writes since the beginning of a database transaction.

**Time.** All processes read the machine's clock in nanoseconds: a *moment*. A row has the moment of its last write, and
a number that only grows, the order of use. Most rules compare moments: see ``host_core``.

**Why SQLite.** LMDB reads 1.4 times and writes 2.5 times as fast. But a stopped writer blocks the others forever, a
full file system kills the worker with SIGBUS, and a ``close`` in the child of a fork frees the reader slots of the
parent.
"""
