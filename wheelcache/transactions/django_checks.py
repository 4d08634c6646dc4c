"""The system check of sites whose requests are transactions."""

from __future__ import annotations

from typing import Any, Final

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage

from wheelcache.django_backend.backend import wheel_caches


def check_transactions(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Recommend TRANSACTIONS to a site whose requests are transactions: values stay when one rolls back."""
    databases = [alias for alias, database in settings.DATABASES.items() if database.get("ATOMIC_REQUESTS")]
    if not databases:
        return []
    return [
        checks.Info(
            f"The database {databases[0]!r} has ATOMIC_REQUESTS, but the cache {alias!r} does not follow its "
            "transactions: a value that a request caches stays when the request rolls back, and other requests receive "
            "it before the data is committed.",
            hint="Set 'TRANSACTIONS': True in the OPTIONS of this cache, or False to keep this without the message.",
            id="wheelcache.I002",
        )
        for alias, cache in wheel_caches()
        if cache.store.above is None and "TRANSACTIONS" not in settings.CACHES[alias].get("OPTIONS", {})
    ]


CHECKS: Final = (check_transactions,)
