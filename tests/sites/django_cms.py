"""django CMS's quickstart, with its demo content."""

from tests.sites.django_sites import django_site

SETTINGS = """
from backend.settings import *

SECURE_SSL_REDIRECT = False
"""

PUBLISHED = """
from django.contrib.auth import get_user_model
from djangocms_versioning.models import Version

author = get_user_model().objects.get(username="Admin")
for version in Version.objects.filter(state="draft"):
    version.publish(author)
from cms.models import Page
Page.objects.order_by("pk").first().set_as_homepage()
"""

DJANGO_CMS = django_site(
    name="django CMS",
    repository="https://github.com/django-cms/django-cms-quickstart",
    commit="aa65b1d3d737a65c18a67cf93a2d98dd760e759e",
    settings=SETTINGS,
    not_installed=("uwsgi", "psycopg2"),
    environment={"DJANGO_SUPERUSER_PASSWORD": "password", "DEFAULT_STORAGE_DSN": "file://media/?url=%2Fmedia%2F"},
    prepare=[
        ["migrate", "--verbosity=0"],
        ["collectstatic", "--verbosity=0", "--noinput"],
        ["createsuperuser", "--noinput", "--username=Admin", "--email=admin@example.com"],
        *(["democontent", "--force", page] for page in ["help.json", "gridrowpercolumn.json"] * 3),
        ["shell", f"--command={PUBLISHED}"],
    ],
    log_in=("/admin/login/", {"username": "Admin", "password": "password"}),
    without=r"/(static|media|admin)/",
)
