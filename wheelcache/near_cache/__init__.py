"""A cache in front of a store that several processes share: Redis, Valkey, a Cluster, or any Django or cachelib cache.

A copy is a value of the store, kept here until the store reports another write, or until its time is over.

- ``django_tiered``, ``flask_tiered``: the backends. ``django_second_level`` and ``flask_second_level`` are the store
  behind each, with final keys and raw values.
- ``near_copies``: the layer under both backends. ``near_cache``: reads, computations and writes.
- ``store_calls``: all calls of the store. ``store_state``: whether it answers; ``outage_rule`` decides when it is down.
- ``invalidations``: chooses the source of reported writes: ``redis_tracking``, ``sentinels``, ``cluster_tracking``.
- ``store_tags``, ``tokens``: tags of values in a store that has none.
- ``store_stats``: its figures. ``options``, ``django_checks``: its options and system checks.

To add a store: none of it is needed for a Django or cachelib cache. If the store can report writes by others, add a
source to ``invalidations``, as ``redis_tracking`` is one: it has ``start`` and ``stop``, and calls a ``Listener``. If
its client has exceptions of its own for an outage, add a line to ``outage_rule``.
"""
