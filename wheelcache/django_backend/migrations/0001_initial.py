from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies: ClassVar = []

    operations: ClassVar = [
        migrations.CreateModel(
            name="Dashboard",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ],
            options={
                "permissions": (
                    ("view_figures", "Can view the figures of the caches"),
                    ("operate", "Can clear the caches and purge their pages"),
                    ("inspect", "Can also find, list and delete entries of the caches"),
                ),
                "managed": False,
                "default_permissions": (),
                "base_manager_name": "objects",
            },
        ),
    ]
