"""wheelcache compared with its peers: ``python -m benchmarks`` measures everything in one run.

Only ratios between contenders of the same run are meaningful. Their rounds take turns, so that a machine that is slow
for a second is slow for all of them.
"""

DEFAULT_MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
"""The middleware of a new Django project, except that of messages."""
