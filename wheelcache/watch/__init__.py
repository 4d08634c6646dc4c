"""The figures of caches: recorded over time, shared by workers, and shown as metrics, in a terminal and on a page.

- ``observers``: attaches to a cache. ``recorder`` assigns its counts to steps of ten seconds; ``publisher`` writes them
  to the database of the site every three seconds.
- ``site_file``, ``tables``, ``rows``, ``group_tables``: that database. ``site`` reads it.
- ``metrics``: all metrics; ``prometheus`` and ``otel`` report them.
- ``problems``: what is wrong with a cache, in one table for the page, the terminal and the alerts.
- ``command_line``, ``site_commands``, ``entry_commands``: the terminal.
- ``dashboard/``: the page. ``one_cache`` has its figures, ``responses`` its buttons.

To add a metric: an entry of ``METRICS`` in ``metrics``. A gauge that workers do not publish yet is first a field of
``State`` in ``recorder``, of ``GAUGES_OF_WORKER`` in ``tables``, and of ``Figures`` in ``figures``, whose
``COMBINERS`` say how the values of the workers become one. To add a chart: an entry of ``HISTORY`` in
``dashboard/one_cache``, and of ``SPECS`` in ``dashboard/charts.js``. To add a problem and its alert: a row of
``RULES`` in ``problems``. To add an event: an ``Event`` of ``event_log``, recorded by ``cache_events``.
"""
