"""The example site's settings without the leases, to see what they are for."""

from atlas_site.settings import *  # noqa: F403
from atlas_site.settings import CACHES

del CACHES["default"]["OPTIONS"]["FILL_WAIT"]
