"""The dashboard: ``path("wheelcache/", include("wheelcache.django_backend.urls"))``."""

from django.urls import path

from wheelcache.django_backend import views
from wheelcache.observability.dashboard.dashboard import ASSETS

app_name = "wheelcache"

urlpatterns = [
    path("", views.page, name="dashboard"),
    path("figures.json", views.figures, name="figures"),
    path("clear", views.clear, name="clear"),
    path("purge", views.purge, name="purge"),
    path("save", views.save, name="save"),
    path("reset", views.reset, name="reset"),
    path("inspect", views.inspect, name="inspect"),
    path("answers", views.answers, name="answers"),
    *(path(name, views.asset, {"name": name}, name=name) for name in ASSETS),
]
