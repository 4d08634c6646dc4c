"""What a ``Cache`` needs around its core. ``cache_parts`` creates the parts, and gives each the objects that it needs.

- ``entry_writer``: the path of a write. ``gate``: whether the cache is unused, open or closed.
- ``loading/``: a value that is missing. ``request`` is what the caller asks for, ``loads`` computes and stores it,
  ``waiting_loads`` waits, serves old values and loads in the background, ``misses`` counts, ``memoize`` decorates.
- ``turns``: of the callers that need a value, one computes it.
- ``codec``, ``keys``: values and keys as the core takes them.
- ``stats``, ``figures``, ``stats_log``: what a cache counts, and the line that it logs.
- ``failures``: the record of failures that guests make.
- ``option_table``, ``options``: all options, with their names in each framework; their checks.
- ``calls``: the calls of a cache for layers in front of it. ``in_memory`` is the simplest layer.

The seams, at which guests plug in, are each a protocol in one file: ``layer``, ``observer``, ``write_watcher``,
``turns``. ``guests`` finds the guests.

To add an option: a row in ``option_table`` with a check of ``options``, a keyword of ``Cache``, and the part that
``cache_parts`` gives it to. To add a count: a line of ``Stats`` in ``stats``, and the code that counts.
"""
