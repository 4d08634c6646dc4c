"""The dashboard: ``path("wheelcache/", include("wheelcache.django_backend.urls"))``."""

from django.urls import path

from wheelcache.django_backend.views import answer
from wheelcache.observability.dashboard.responses import PATHS

app_name = "wheelcache"

urlpatterns = [path(each, answer, {"path": each}, name=each or "dashboard") for each in PATHS]
