"""The names of the heart that guests use. ``test_architecture.py`` compares them with the imports.

A guest that needs another name adds it here, and looks first for a call of a seam that does the same. Each name has a
docstring. ``itself`` is a module that guests import as a whole.
"""

NAMES = {
    "cache": "Cache caches",
    "core": "CoreClass HOW_TO_CHANGE IMPLEMENTATION REPORT",
    "core.access": "is_printable itself Serialized VersionedAccess",
    "core.contract": (
        "BATCH CHANGED Core Counts GroupRule KEEP_TTL Labels MissCause MISSING OUTDATED PRESENT Record RemovalCause "
        "Removals STORED Times TOO_HEAVY WAKE Watch"
    ),
    "core.group_rules": "group_by_rules",
    "django_backend.backend": "wheel_caches WheelCache",
    "django_backend.redis_calls": "Awaited selection",
    "django_backend.site_settings": "aliases_of cache_in_words figures_directory site_identity use_release",
    "django_backend.stores": "Store",
    "engine.backend_access": "checked_tags",
    "engine.calls": "Engine",
    "engine.codec": "Codec NOT_DECODED read_or_delete",
    "engine.failures": "Failure MAX_LENGTH message_of",
    "engine.glob_pattern": "escaped matcher",
    "engine.guests": "lazy_names",
    "engine.keys": "CALLERS callers_tags GROUP group_of INTERNAL KeyProxies matching NO_VIEW text_of unwrap",
    "engine.layer": "Above NO_GRACES Select Shared SharedLayer",
    "engine.loading.loads": "TAKEN",
    "engine.loading.memoize": "Group",
    "engine.loading.request": "LoadPolicy LoadRequest PLAIN seconds_for Tagged takes_previous Unstored untagged",
    "engine.loading.waiting_loads": "stale_record wait_for_claim",
    "engine.observed": "ObservedCache SharedState",
    "engine.option_table": "Option Options Setting Spelling",
    "engine.options": "expires_now itself MAX_JITTER names seconds shown",
    "engine.stats": "COUNTERS GroupStats LOAD_BOUNDS Meter MISSES MOST_GROUPS REMOVALS Stats",
    "engine.turns": "End enter Is led Turn Turns",
    "engine.write_watcher": "APPLIED WriteMoments WritesSince WriteWatcher",
    "errors": ("CacheClosed FileUnusable LockError LockNotOwned StoreUnavailable TagsUnsupported WheelClosed"),
    "flask_backend.app_contexts": "figures_directory",
    "flask_backend.backend": "WheelCache",
    "flask_backend.engine_backend": "Begun EngineBackend Timeout",
    "runtime.alarm": "Alarm",
    "runtime.clock": "Clock moment SystemClock unfrozen",
    "runtime.lifecycle": "itself",
    "runtime.periodic_jobs": "PeriodicJob",
    "runtime.private_files": (
        "check_private FileLocked lock_file locked_file make_private NEEDS_UNIX not_for_children pause "
        "runtime_directory shared_memory"
    ),
    "runtime.request_scope": "current_scope RequestScope running_scope",
    "runtime.reusable": "check_reusable",
    "runtime.shared_objects": "acquiring HeldLock Lazy lazy_lock WeakRegistry",
    "runtime.steps": "BLOCKS Call drive drive_async in_steps InSteps Outcome result run run_async Steps StepsTo Wait",
    "runtime.threads": "itself",
    "runtime.wheel_driver": "ManualClock WheelDriver",
    "runtime.worker_pool": "WorkerPool",
}
