"""The dashboard: ``path("wheelcache/", include("wheelcache.watch.urls"))``."""

from django.urls import path

from wheelcache.watch.dashboard.responses import PATHS
from wheelcache.watch.django_views import answer

app_name = "wheelcache"

urlpatterns = [path(each, answer, {"path": each}, name=each or "dashboard") for each in PATHS]
