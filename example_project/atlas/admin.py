from django.contrib import admin

from atlas.models import City


@admin.register(City)
class CityAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # It has type arguments in its stubs only.
    list_display = ("name", "country", "population")
    search_fields = ("name",)
    raw_id_fields = ("country",)
