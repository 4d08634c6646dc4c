"""Misago, a forum with its fixture of categories, threads and posts."""

from tests.sites.django_sites import django_site

SETTINGS = """
from devproject.settings import *

INSTALLED_APPS = ["misago_dev_site_fixture", *INSTALLED_APPS]
CELERY_BROKER_URL = "memory://"
"""

MISAGO = django_site(
    name="Misago",
    repository="https://github.com/rafalp/Misago",
    commit="485618d52a2e4f99b60922e251e104cf281752dd",
    settings=SETTINGS,
    environment={"PYTHONPATH": "plugins/misago-dev-site-fixture"},
    prepare=[
        ["migrate", "--verbosity=0"],
        ["collectstatic", "--verbosity=0", "--noinput"],
        ["createsuperuser", "--noinput", "--username=Admin", "--email=admin@example.com", "--password=password"],
        ["loaddevfixture"],
    ],
    log_in=("/login/", {"username": "Admin", "password": "password"}),
    without=r"/(static|media|admincp|django-admin|logout|__debug__)/|/(rss|atom)",
)
