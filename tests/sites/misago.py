"""Misago, a forum. Its own fixture does not load at this commit, so its own functions write threads and posts."""

from tests.sites.django_sites import django_site

SETTINGS = """
from devproject.settings import *

CELERY_BROKER_URL = "memory://"
"""

THREADS = """
from datetime import UTC, datetime

from misago.categories.models import Category
from misago.categories.synchronize import synchronize_category
from misago.threads.create import create_thread
from misago.threads.models import Post
from misago.threads.synchronize import synchronize_thread

category = Category.objects.get(slug="first-category")
for number in range(12):
    thread = create_thread(category, f"Thread {number}")
    for reply in range(10):
        Post.objects.create(
            category=category,
            thread=thread,
            poster_name="Admin",
            original=f"Reply {reply}",
            parsed=f"<p>Reply {reply}</p>",
            # The site shows recent times as "5 minutes ago".
            posted_at=datetime(2025, 1, 1 + number, reply, tzinfo=UTC),
        )
    synchronize_thread(thread)
synchronize_category(category)
"""

MISAGO = django_site(
    name="Misago",
    repository="https://github.com/rafalp/Misago",
    commit="c7ffe0b6d3739efc534d0e6d60a6b9ee959ae789",
    settings=SETTINGS,
    prepare=[
        ["migrate", "--verbosity=0"],
        ["collectstatic", "--verbosity=0", "--noinput"],
        ["createsuperuser", "--noinput", "--username=Admin", "--email=admin@example.com", "--password=password"],
        ["shell", f"--command={THREADS}"],
    ],
    log_in=("/login/", {"username": "Admin", "password": "password"}),
    without=r"/(static|media|admincp|django-admin|logout|__debug__)/|/(rss|atom)",
)
