"""A Flask site whose workers share a HostCache, which has its views and the results of functions.

Environment: ``HOST_FOLDER``, with the entries, and the file ``runs``: a byte for each computation.
"""

import os
from pathlib import Path

import flask

from tests.host_cache.servers.runs import computed
from wheelcache.flask_backend import Cache

application = flask.Flask("site")
application.config.update(
    CACHE_TYPE="wheelcache.flask_backend.HostCache",
    CACHE_OPTIONS={
        "location": str(Path(os.environ["HOST_FOLDER"], "cache")),
        "figures_dir": None,
        "fill_wait": {"pages": 30},
    },
)
cache = Cache(application)

application.get("/page/<name>")(cache.cached(timeout=600)(computed))
application.get("/value/<name>", endpoint="value")(lambda name: memoized(name))
memoized = cache.memoize(600)(computed)
