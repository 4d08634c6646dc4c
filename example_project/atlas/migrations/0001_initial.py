from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    operations: ClassVar = [
        migrations.CreateModel(
            name="Continent",
            fields=[
                ("code", models.CharField(max_length=2, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=40)),
            ],
            options={
                "ordering": ("name",),
            },
        ),
        migrations.CreateModel(
            name="Country",
            fields=[
                ("code", models.CharField(max_length=2, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=80)),
                ("capital", models.CharField(max_length=80)),
                ("population", models.PositiveBigIntegerField()),
                ("area_km2", models.PositiveIntegerField()),
                (
                    "continent",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="countries", to="atlas.continent"
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "countries",
                "ordering": ("name",),
            },
        ),
        migrations.CreateModel(
            name="City",
            fields=[
                ("id", models.PositiveIntegerField(primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=80)),
                ("latitude", models.FloatField(db_index=True)),
                ("longitude", models.FloatField()),
                ("population", models.PositiveIntegerField(db_index=True)),
                ("timezone", models.CharField(max_length=40)),
                (
                    "country",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="cities", to="atlas.country"
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "cities",
                "ordering": ("-population", "name"),
            },
        ),
    ]
