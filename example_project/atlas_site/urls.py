from django.contrib.auth.views import LoginView
from django.urls import include, path

urlpatterns = [
    path("", include("atlas.urls")),
    path("login/", LoginView.as_view(template_name="atlas/login.html"), name="login"),
    # For staff that is logged in.
    path("wheelcache/", include("wheelcache.django_backend.urls")),
]
