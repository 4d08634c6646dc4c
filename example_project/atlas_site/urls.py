from django.contrib import admin
from django.contrib.auth.views import LoginView
from django.urls import include, path

urlpatterns = [
    path("", include("atlas.urls")),
    path("admin/", admin.site.urls),
    path("login/", LoginView.as_view(template_name="atlas/login.html"), name="login"),
    # For users with the permission wheelcache.view_figures or wheelcache.operate.
    path("wheelcache/", include("wheelcache.watch.urls")),
]
