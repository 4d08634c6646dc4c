from django.db import models
from django.urls import reverse


class Continent(models.Model):
    code = models.CharField(max_length=2, primary_key=True)
    name = models.CharField(max_length=40)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("continent", args=[self.code])


class Country(models.Model):
    code = models.CharField(max_length=2, primary_key=True)
    name = models.CharField(max_length=80)
    continent = models.ForeignKey(Continent, on_delete=models.CASCADE, related_name="countries")
    capital = models.CharField(max_length=80)
    population = models.PositiveBigIntegerField()
    area_km2 = models.PositiveIntegerField()

    class Meta:
        ordering = ("name",)
        verbose_name_plural = "countries"

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("country", args=[self.code])


class City(models.Model):
    """A city. Its primary key is its number in GeoNames."""

    id = models.PositiveIntegerField(primary_key=True)
    name = models.CharField(max_length=80)
    country = models.ForeignKey(Country, on_delete=models.CASCADE, related_name="cities")
    latitude = models.FloatField(db_index=True)
    longitude = models.FloatField()
    population = models.PositiveIntegerField(db_index=True)
    timezone = models.CharField(max_length=40)

    class Meta:
        ordering = ("-population", "name")
        verbose_name_plural = "cities"

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("city", args=[self.pk])
