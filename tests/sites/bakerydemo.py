"""Wagtail's bakerydemo, with its initial data."""

from tests.sites.django_sites import django_site

SETTINGS = """
from bakerydemo.settings.base import *

WAGTAILADMIN_BASE_URL = "http://www.example.com"
"""

BAKERYDEMO = django_site(
    name="Wagtail bakerydemo",
    repository="https://github.com/wagtail/bakerydemo",
    commit="3c7e3af163175cdf9bd7b5c0c3fb80297b152724",
    settings=SETTINGS,
    requirements="requirements/base.txt",
    # Version 0.9 fails in Python 3.11.7.
    also_installed=("django-tasks==0.8.1",),
    prepare=[
        ["migrate", "--verbosity=0"],
        ["collectstatic", "--verbosity=0", "--noinput"],
        ["load_initial_data"],
    ],
    log_in=("/django-admin/login/", {"username": "admin", "password": "changeme"}),
    without=r"/(static|media|admin|django-admin|documents)/",
)
