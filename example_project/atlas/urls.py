from django.urls import path

from atlas import views

urlpatterns = [
    path("", views.home, name="home"),
    path("country/<str:code>/", views.country, name="country"),
    path("city/<int:pk>/", views.city, name="city"),
    path("cities/", views.summaries, name="summaries"),
    path("statistics/", views.statistics, name="statistics"),
    path("async/<str:code>/", views.continent, name="continent"),
    path("cache/empty/", views.empty_cache, name="empty_cache"),
]
